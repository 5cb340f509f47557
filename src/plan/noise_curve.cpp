#include "copus/plan/noise_curve.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "copus/core/error.h"
#include "copus/plan/goodput.h"

namespace copus {

double useful_per_token(const Config& config, std::int64_t batch, double critical_batch) {
  Objective const objective = config.adapt.objective;
  std::int64_t const reference = config.batch_rule.reference_batch > 0
                                     ? config.batch_rule.reference_batch
                                     : config.batch.sequences;
  double const phi = config.adapt.calibration * critical_batch;
  constexpr double kNoNoise = std::numeric_limits<double>::infinity();
  return progress_per_token(objective, static_cast<double>(batch), phi) /
         progress_per_token(objective, static_cast<double>(reference), kNoNoise);
}

NoiseCurve::NoiseCurve(const PowerLaw& law, double error) : law_(law), error_(error) {}

NoiseCurve::NoiseCurve(std::vector<NoisePoint> points) : points_(std::move(points)) {
  COPUS_CHECK(!points_.empty(), "a curve has a point");
}

NoisePoint NoiseCurve::at(double useful_tokens) const {
  if (law_) {
    double const value = law_->start * std::pow(1.0 + useful_tokens / law_->tokens, law_->exponent);
    return {useful_tokens, value, value / (1.0 + error_), value * (1.0 + error_)};
  }
  auto const after = std::upper_bound(
      points_.begin(), points_.end(), useful_tokens,
      [](double tokens, const NoisePoint& point) { return tokens < point.useful_tokens; });
  if (after == points_.begin() || after == points_.end()) {
    NoisePoint out = after == points_.end() ? points_.back() : points_.front();
    out.useful_tokens = useful_tokens;
    return out;
  }
  const NoisePoint &a = *std::prev(after), &b = *after;
  double const t = (useful_tokens - a.useful_tokens) / (b.useful_tokens - a.useful_tokens);
  return {useful_tokens, std::lerp(a.critical_batch, b.critical_batch, t),
          std::lerp(a.low, b.low, t), std::lerp(a.high, b.high, t)};
}

std::optional<double> NoiseCurve::end() const {
  if (law_) return {};
  return points_.back().useful_tokens;
}

}  // namespace copus
