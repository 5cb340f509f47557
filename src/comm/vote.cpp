#include "copus/comm/vote.h"

#include <fmt/format.h>

#include "copus/comm/broadcast.h"

namespace copus {

std::string first_problem(Communicator& ranks, const std::string& problem) {
  double first = problem.empty() ? ranks.size() : ranks.rank();
  ranks.all_reduce(std::span(&first, 1), ReduceOp::min);
  if (first >= ranks.size()) return "";
  int const root = static_cast<int>(first);
  return fmt::format("rank {}: {}", root, broadcast_text(ranks, problem, root));
}

}  // namespace copus
