#include "copus/plan/double_count.h"

#include <algorithm>
#include <cmath>

namespace copus {
namespace {

// Residuals that only set the scale; after them the scale follows the last 64 or so, because
// gradient noise falls during training.
constexpr std::int64_t kScaling = 8;
constexpr double kMemory = 64.0;
// rho: the check is sharpest for about so many residuals and loses little for more. A gross mistake
// is flagged within some 30.
constexpr double kRho = 16.0;

}  // namespace

void DoubleCountCheck::add(double residual) {
  if (!std::isfinite(residual)) return;
  if (seen >= kScaling && mean_square > 0.0) {
    double const standard = residual / std::sqrt(mean_square);
    sum += standard;
    sum_squares += standard * standard;
    double const total = sum_squares + kRho;
    evidence = std::max(evidence, 0.5 * (sum * sum / total - std::log(total / kRho)));
  }
  seen += 1;
  double const gain = 1.0 / std::min(static_cast<double>(seen), kMemory);
  mean_square += gain * (residual * residual - mean_square);
}

bool DoubleCountCheck::flagged() const {
  return evidence >= -std::log(kFalseAlarmRate);
}

}  // namespace copus
