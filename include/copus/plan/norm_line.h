// Squared gradient norms of one step at up to three batch sizes, with the straight line through
// them.
//
// For the mean gradient g_b over b sequences, G = E g and Sigma one sequence's covariance
//   E|g_b|^2 = |G|^2 + tr Sigma / b                     (McCandlish et al. 2018, appendix A.1),
// a straight line in x = 1/b: intercept |G|^2, slope tr Sigma. Gradients here are sums over tokens;
// a part with n loss-bearing tokens counts as b = n / T sequences of T tokens.
#pragma once
#include <cstdint>
#include <optional>

namespace copus {

// The mean, over independent parts of a step, of the squared norm of a part's mean gradient.
struct NormPoint {
  double square = 0.0;   // mean of |g|^2
  double inverse = 0.0;  // x = mean of 1/b, in 1/sequences
  double parts = 0.0;    // averaged; 0: there is no such point

  bool operator==(const NormPoint&) const = default;
};

// A point on its way through the step's scalar all-reduce: three numbers that add up over ranks.
struct PointSums {
  double square = 0.0, inverse = 0.0, parts = 0.0;

  PointSums& operator+=(const PointSums& other);
};

// What one rank adds. `square_sum`: of the *sum* gradient, over this rank's shard, with everything
// this rank shares with tp or pp peers counted on one of them. `tokens`: loss-bearing, of its
// data-parallel rank's part. `speaks`: true on exactly one (tp, pp) rank of that part, which counts
// it. A part without tokens has no mean gradient and adds nothing.
PointSums sums_of(double square_sum, std::int64_t tokens, std::int64_t seq_len, bool speaks);
NormPoint point_of(const PointSums& over_all_ranks);

// (a) after the first micro-batch, averaged over dp; (b) after the last, before the dp reduction,
// averaged over dp; (c) the whole step, after it. A point not measured is left empty: (a) with one
// micro-batch a rank is (b), (b) with one data-parallel rank is (c).
struct StepNorms {
  NormPoint first, local, whole;
};

// Two batch sizes need two micro-batches in all, three points at least two on each of two ranks.
constexpr bool has_estimate(std::int64_t dp, std::int64_t accumulation) {
  return dp * accumulation > 1;
}
constexpr bool has_residual(std::int64_t dp, std::int64_t accumulation) {
  return dp > 1 && accumulation > 1;
}

// One step's raw pair, in per-sequence units, and how sure it is. The variances are in units of
// 2 tr(Sigma^2), which no single step knows.
struct LineFit {
  double signal = 0.0;  // |G|^2; one step's may well be negative, and stays so
  double trace = 0.0;   // tr Sigma; likewise
  double signal_variance = 0.0, trace_variance = 0.0, covariance = 0.0;
  // With three points: how far the two slopes are apart, scaled to variance 2 tr(Sigma^2) at every
  // layout and batch. Its mean is 0 unless a norm counts something that another does not.
  std::optional<double> residual;
};

// Least squares with the norms' covariance. A part's norm has, for Gaussian gradients, variance
// 4 G'Sigma G / b + 2 tr(Sigma^2) / b^2, and two norms of which one part lies in the other covary
// by the larger part's variance. So (a) - (b), (b) - (c) and (c) are uncorrelated: two independent
// slopes, and the level of (c). Each slope weighs dx^2 / (V_small - V_large), the intercept is
// (c)'s norm less slope * x.
// V = x^2 / parts leaves the term with G out: it matters only where the noise scale is below two
// micro-batches or so, and without it the weights hold no data. The fit is then linear in the
// norms: unbiased for any distribution and any token counts, best for Gaussian ones and equal
// counts.
// Nothing where all points coincide (one micro-batch in all).
std::optional<LineFit> fit_line(const StepNorms& norms);

}  // namespace copus
