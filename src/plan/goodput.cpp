#include "copus/plan/goodput.h"

#include <cmath>

namespace copus {

double progress_per_token(Objective objective, double batch, double phi) {
  double const efficiency = 1.0 / (1.0 + batch / phi);
  switch (objective) {
    case Objective::plain:
      return efficiency;
    case Objective::sqrt_lr:
      return efficiency * std::sqrt(batch);
    case Objective::normalized:
      return std::sqrt(efficiency);
  }
  return efficiency;
}

double goodput(Objective objective, double tokens_per_second, double batch, double phi) {
  return tokens_per_second * progress_per_token(objective, batch, phi);
}

// Each is the positive root of d/dB log(B / (x + B) progress(B)) = 0, a quadratic in B.
double best_batch(Objective objective, double x, double phi) {
  switch (objective) {
    case Objective::plain:
      return std::sqrt(x * phi);
    case Objective::sqrt_lr:
      return 0.5 * (x + phi + std::sqrt((x + phi) * (x + phi) + 12.0 * x * phi));
    case Objective::normalized:
      return 0.5 * (x + std::sqrt(x * x + 8.0 * x * phi));
  }
  return 0.0;
}

std::optional<double> crossing(Objective objective, const Rate& a, const Rate& b) {
  // Up to a power, every goodput is w / (B + phi) with a weight w that phi has no part in.
  auto const weight = [objective](const Rate& rate) {
    switch (objective) {
      case Objective::sqrt_lr:
        return rate.tokens_per_second * std::sqrt(rate.batch);
      case Objective::normalized:
        return rate.tokens_per_second * rate.tokens_per_second;
      default:
        return rate.tokens_per_second;
    }
  };
  double const wa = weight(a), wb = weight(b);
  if (wa == wb) return std::nullopt;
  double const phi = (wa * b.batch - wb * a.batch) / (wb - wa);
  if (!(phi > 0.0)) return std::nullopt;
  return phi;
}

}  // namespace copus
