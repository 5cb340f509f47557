#include "copus/plan/norm_line.h"

#include <cmath>

#include "copus/core/error.h"

namespace copus {
namespace {

struct Slope {
  double value = 0.0, weight = 0.0;
};

// Variance in units of 2 tr(Sigma^2), the larger parts' noise taken as dominant.
double variance_of(const NormPoint& point) {
  return point.inverse * point.inverse / point.parts;
}

// From the small parts to the large ones they lie in; none where they are the same parts.
std::optional<Slope> slope_between(const NormPoint& small, const NormPoint& large) {
  // Equal parts have equal token counts, so their abscissae differ by rounding alone; parts that
  // differ do so by a token in T times the batch.
  constexpr double kSameParts = 1e-12;
  double const dx = small.inverse - large.inverse;
  double const variance = variance_of(small) - variance_of(large);
  if (dx <= kSameParts * small.inverse || variance <= 0.0) return std::nullopt;
  return Slope{(small.square - large.square) / dx, dx * dx / variance};
}

}  // namespace

PointSums& PointSums::operator+=(const PointSums& other) {
  square += other.square;
  inverse += other.inverse;
  parts += other.parts;
  return *this;
}

PointSums sums_of(double square_sum, std::int64_t tokens, std::int64_t seq_len, bool speaks) {
  COPUS_CHECK(tokens >= 0 && seq_len > 0, "a part has a count of tokens of a sequence's length");
  if (tokens == 0) return {};
  auto const n = static_cast<double>(tokens);
  PointSums sums;
  sums.square = square_sum / (n * n);
  if (speaks) {
    sums.inverse = static_cast<double>(seq_len) / n;
    sums.parts = 1.0;
  }
  return sums;
}

NormPoint point_of(const PointSums& over_all_ranks) {
  double const parts = over_all_ranks.parts;
  if (parts == 0.0) return {};
  return {over_all_ranks.square / parts, over_all_ranks.inverse / parts, parts};
}

std::optional<LineFit> fit_line(const StepNorms& norms) {
  const NormPoint& whole = norms.whole;
  if (whole.parts == 0.0) return std::nullopt;
  const NormPoint& local = norms.local.parts > 0.0 ? norms.local : whole;
  std::optional<Slope> to_whole, to_local;
  if (norms.local.parts > 0.0) to_whole = slope_between(local, whole);
  // A rank whose first micro-batch bears no loss leaves (a) an average over other parts than (b)'s,
  // for which the covariances above do not hold.
  bool const same_ranks = norms.local.parts == 0.0 || norms.first.parts == local.parts;
  if (norms.first.parts > 0.0 && same_ranks) to_local = slope_between(norms.first, local);
  if (!to_whole && !to_local) return std::nullopt;

  Slope const a = to_local.value_or(Slope{}), b = to_whole.value_or(Slope{});
  double const weight = a.weight + b.weight;
  LineFit fit;
  fit.trace = (a.weight * a.value + b.weight * b.value) / weight;
  fit.signal = whole.square - fit.trace * whole.inverse;
  fit.trace_variance = 1.0 / weight;
  fit.signal_variance = whole.inverse * whole.inverse * (1.0 + fit.trace_variance);
  fit.covariance = -whole.inverse * fit.trace_variance;
  if (to_local && to_whole) {
    fit.residual = (a.value - b.value) / std::sqrt(1.0 / a.weight + 1.0 / b.weight);
  }
  return fit;
}

}  // namespace copus
