// The standard normal distribution's cumulative probability; its quantiles are in quantile.h.
#pragma once
#include <cmath>

namespace copus::detail {

inline double normal_cdf(double z) {
  return 0.5 * std::erfc(-z / std::sqrt(2.0));
}

}  // namespace copus::detail
