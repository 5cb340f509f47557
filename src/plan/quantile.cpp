#include "plan/quantile.h"

#include <cmath>

namespace copus::detail {

double normal_quantile(double confidence) {
  double const tail = 1.0 - confidence;
  double low = 0.0, high = 40.0;  // erfc underflows before
  for (int halving = 0; halving < 64; ++halving) {
    double const middle = 0.5 * (low + high);
    (std::erfc(middle / std::sqrt(2.0)) > tail ? low : high) = middle;
  }
  return 0.5 * (low + high);
}

double student_quantile(double z, double degrees) {
  double const s = z * z, n = degrees;
  double const g1 = (s + 1.0) * z / 4.0;
  double const g2 = ((5.0 * s + 16.0) * s + 3.0) * z / 96.0;
  double const g3 = (((3.0 * s + 19.0) * s + 17.0) * s - 15.0) * z / 384.0;
  double const g4 = ((((79.0 * s + 776.0) * s + 1482.0) * s - 1920.0) * s - 945.0) * z / 92160.0;
  return z + (g1 + (g2 + (g3 + g4 / n) / n) / n) / n;
}

}  // namespace copus::detail
