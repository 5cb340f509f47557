// The middle of several measurements.
#pragma once
#include <algorithm>
#include <cstddef>
#include <vector>

namespace copus {

// Of an even number, the upper of the two in the middle. Not of none.
inline double median(std::vector<double> values) {
  auto const middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace copus
