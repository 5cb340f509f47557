#include "copus/train/step_record.h"

#include <algorithm>
#include <vector>

namespace copus {

Spread spread_of(std::span<const double> of_ranks) {
  auto const slowest = std::max_element(of_ranks.begin(), of_ranks.end()) - of_ranks.begin();
  std::vector<double> sorted(of_ranks.begin(), of_ranks.end());
  std::sort(sorted.begin(), sorted.end());
  return {sorted.front(), sorted[sorted.size() / 2], sorted.back(), static_cast<int>(slowest)};
}

}  // namespace copus
