// Text to token ids: the tokenizer as a value, so that shards, models and prompts can compare it.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace copus {

struct Tokenizer {
  std::string id;                // as stored in shard headers
  std::int64_t vocab = 0;        // ids are [0, vocab)
  std::int32_t end_of_text = 0;  // stands once after each document
};

// "bytes": ids 0-255 are the bytes themselves, 256 ends a text. Anything else is refused with what
// is accepted.
Tokenizer open_tokenizer(const std::string& name);

// Appends the ids of `text` to `out`; no end of text. Any bytes are accepted.
void encode(const Tokenizer& tokenizer, std::string_view text, std::vector<std::int32_t>& out);
// The text of `ids`; an end of text is dropped. Throws ConfigError on an id outside the vocabulary.
std::string decode(const Tokenizer& tokenizer, std::span<const std::int32_t> ids);

}  // namespace copus
