#include "copus/comm/broadcast.h"

#include <algorithm>
#include <vector>

namespace copus {

std::string broadcast_text(Communicator& ranks, const std::string& text, int root) {
  auto length = static_cast<std::int32_t>(text.size());
  broadcast_value(ranks, length, root);
  // A byte a word: the texts are short.
  std::vector<std::int32_t> words(static_cast<std::size_t>(length));
  if (ranks.rank() == root) std::copy(text.begin(), text.end(), words.begin());
  ranks.broadcast({words.data(), DType::i32, {length}}, root);
  std::string out(words.size(), '\0');
  std::transform(words.begin(), words.end(), out.begin(),
                 [](std::int32_t word) { return static_cast<char>(word); });
  return out;
}

}  // namespace copus
