// The gradient noise scale of a run: averages of tr Sigma and |G|^2 over its steps' norms, and how
// far their ratio can be trusted.
//
// phi = tr Sigma / |G|^2, in sequences (McCandlish et al. 2018), is estimated as the ratio of two
// averages: the ratio's own average does not exist, since one step's |G|^2 comes near 0 at will.
// Both averages are per-sequence quantities, so a change of batch or layout leaves them as they
// are; they belong to one sequence length.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "copus/core/config.h"
#include "copus/plan/double_count.h"
#include "copus/plan/norm_line.h"

namespace copus {

// cold: fewer than kColdEstimates. unresolved: |G|^2 cannot be told from 0, or nothing can be
// measured; nobody may act on it. The half-life enters through the averages alone.
enum class GnsState { cold, warm, unresolved };
std::string_view name_of(GnsState state);
constexpr std::int64_t kColdEstimates = 8;

// A variance as (what the weights make of it) x (what one unit of it turned out to be).
struct AverageNoise {
  double factor = 0.0;  // of the average, in units
  double unit = 0.0;    // 2 tr(Sigma^2), as the scatter of the estimates shows it
  bool operator==(const AverageNoise&) const = default;
};

// All that the estimator remembers: equal on every rank, carried by checkpoints and switches.
struct GnsHistory {
  std::int64_t estimates = 0;
  std::int64_t tokens = 0;           // of the run, at the last estimate
  std::int64_t one_micro_batch = 0;  // 1: the last look found nothing to estimate from
  double weight = 0.0;               // sequences behind the averages, decayed to `tokens`
  double weight_share = 0.0;         // sum of squared weights / square of their sum
  double trace = 0.0, signal = 0.0;  // the averages
  AverageNoise trace_noise, signal_noise, covariance;
  double unit_share = 0.0;  // as weight_share, of the weights in the units
  DoubleCountCheck double_count;

  // Another layout counts its parameters anew; the averages stay.
  void layout_changed() { double_count = {}; }
  bool operator==(const GnsHistory&) const = default;
};

// One line of metrics. What is not known is not there.
struct GnsReading {
  GnsState state = GnsState::cold;
  std::string reason;                             // of unresolved, else empty
  std::optional<double> trace, signal;            // averages
  std::optional<double> critical_batch;           // trace / signal, where both are above 0
  std::optional<double> low, high;                // its interval
  std::optional<double> trace_step, signal_step;  // this step's raw pair, whatever the state
  bool double_count = false;  // the norms do not agree on what they count: the pair is wrong
};

// The half-life that a configuration asks for. 0 stands for 1/50 of the run, but at least for eight
// estimates: over fewer, an average of one run's steps is as uncertain as a single one, and a short
// run would never know its noise scale.
double half_life_tokens(const Config& config);
inline constexpr double kLeastEstimates = 8.0;

// Averages. An estimate weighs as many sequences as its step had, halved every half-life of tokens,
// and the sum of weights divides: so the averages are unbiased from the first estimate on, and
// neither a gap nor a change of batch moves them.
//
// Interval. An estimate's distance from the average before it has the variance (its own factor +
// the average's) x unit; the mean of distance^2 / factor gives the unit, for trace, signal and
// their product, over as many estimates as the averages reach back and at least 64. With equal
// weights that is the usual sample variance. Distances count relative to the averages of their
// time: gradients shrink by orders of magnitude in a run's first steps, and how far estimates
// scattered then says nothing of how far they scatter now. The units need no Gaussian gradients,
// only the ratio of factors between batches does; averages that drift widen them. A
// short half-life thus widens the interval and cannot make it unknowable. phi's interval is
// Fieller's (1954): all phi for which trace - phi signal is within t standard errors of 0. It is
// bounded exactly when |G|^2's own interval leaves out 0, which is the line between warm and
// unresolved; the delta method's, always finite and symmetric, is wrong just there, where the
// ratio's distribution is skewed.
class GnsEstimator {
 public:
  // An estimate ages the averages by 1/least_estimates of a half-life at most; 0: by its tokens
  // alone.
  GnsEstimator(double half_life_tokens, double confidence, const GnsHistory& history = {},
               double least_estimates = 0.0);

  // A step's norms; `tokens`: consumed after it. A skipped step is not shown to it; norms that are
  // not finite change nothing.
  GnsReading observe(const StepNorms& norms, std::int64_t tokens);
  GnsReading reading() const;

  const GnsHistory& history() const { return history_; }

 private:
  void add(const LineFit& fit, double sequences, std::int64_t tokens);

  double half_life_tokens_ = 0.0, confidence_ = 0.0;
  double most_half_lives_ = 0.0;  // that one estimate ages the averages by
  double normal_quantile_ = 0.0;  // of confidence
  GnsHistory history_;
};

}  // namespace copus
