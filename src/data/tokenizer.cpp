#include "copus/data/tokenizer.h"

#include <fmt/format.h>

#include "copus/core/error.h"

namespace copus {

Tokenizer open_tokenizer(const std::string& name) {
  if (name != "bytes") {
    throw ConfigError(
        fmt::format("tokenizer \"{}\": not supported; accepted: \"bytes\" (256 bytes and an end of "
                    "text, vocabulary 257)",
                    name));
  }
  return {.id = "bytes", .vocab = 257, .end_of_text = 256};
}

void encode(const Tokenizer&, std::string_view text, std::vector<std::int32_t>& out) {
  std::size_t const at = out.size();
  out.resize(at + text.size());
  for (std::size_t i = 0; i < text.size(); ++i) out[at + i] = static_cast<unsigned char>(text[i]);
}

std::string decode(const Tokenizer& tokenizer, std::span<const std::int32_t> ids) {
  std::string text;
  text.reserve(ids.size());
  for (std::int32_t const id : ids) {
    if (id < 0 || id >= tokenizer.vocab) {
      throw ConfigError(fmt::format("token {}: outside the vocabulary of {} of tokenizer \"{}\"",
                                    id, tokenizer.vocab, tokenizer.id));
    }
    if (id != tokenizer.end_of_text) text.push_back(static_cast<char>(id));
  }
  return text;
}

}  // namespace copus
