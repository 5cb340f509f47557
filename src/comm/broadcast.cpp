#include "copus/comm/broadcast.h"

#include <vector>

namespace copus {

std::string broadcast_text(Communicator& ranks, const std::string& text, int root) {
  std::uint64_t length = text.size();
  broadcast_value(ranks, length, root);
  std::vector<std::uint64_t> words((length + 7) / 8);
  if (ranks.rank() == root && length > 0) std::memcpy(words.data(), text.data(), length);
  ranks.all_reduce(std::span<std::uint64_t>(words), ReduceOp::sum);
  return {reinterpret_cast<const char*>(words.data()), static_cast<std::size_t>(length)};
}

}  // namespace copus
