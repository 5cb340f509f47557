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

bool agreed(Communicator& ranks, const std::vector<std::string>& mistakes) {
  double found[2] = {mistakes.empty() ? 0.0 : 1.0,
                     !mistakes.empty() && ranks.rank() == 0 ? 1.0 : 0.0};
  ranks.all_reduce(std::span<double>(found), ReduceOp::max);
  if (!mistakes.empty() && (ranks.rank() == 0 || found[1] == 0.0)) throw ConfigError(mistakes);
  return found[0] == 0.0;
}

}  // namespace copus
