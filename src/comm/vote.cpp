#include "copus/comm/vote.h"

#include <fmt/format.h>

#include <array>
#include <cstring>

namespace copus {

std::string first_problem(Communicator& ranks, const std::string& problem) {
  double first = problem.empty() ? ranks.size() : ranks.rank();
  ranks.all_reduce(std::span(&first, 1), ReduceOp::min);
  if (first >= ranks.size()) return "";
  int const root = static_cast<int>(first);
  std::array<std::int32_t, 64> words{};
  char* const text = reinterpret_cast<char*>(words.data());
  std::size_t const room = sizeof words - 1;  // a zero ends it
  if (ranks.rank() == root) std::memcpy(text, problem.data(), std::min(problem.size(), room));
  ranks.broadcast({words.data(), DType::i32, {static_cast<std::int64_t>(words.size())}}, root);
  return fmt::format("rank {}: {}", root, text);
}

}  // namespace copus
