#include "copus/plan/gns.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "copus/core/error.h"
#include "plan/quantile.h"

namespace copus {
namespace {

static_assert(std::is_trivially_copyable_v<GnsHistory>, "numbers, for checkpoints and switches");

// The units reach back over the averages, and over so many estimates at least.
constexpr double kUnitMemory = 64.0;
// Below 3 degrees of freedom an interval is too wide to print (and t's series too short); rounding
// must not take the 3.
constexpr double kLeastDegrees = 2.999;

bool is_finite(const NormPoint& point) {
  return std::isfinite(point.square) && std::isfinite(point.inverse);
}

// An estimate of factor `own` joins with weight `gain` an average that it is `product` of distances
// away from.
void join(AverageNoise& noise, double product, double own, double gain, double unit_gain) {
  noise.unit += unit_gain * (product / (own + noise.factor) - noise.unit);
  noise.factor = (1.0 - gain) * (1.0 - gain) * noise.factor + gain * gain * own;
}

// How large estimates from a batch of so many sequences scatter, up to a constant: the noise left
// in the norms, and for |G|^2 the mean gradient's own share.
struct Scatter {
  double trace = 0.0, signal = 0.0;
};

Scatter scatter_of(double trace, double signal, double sequences) {
  double const noise = std::max(0.0, trace);
  return {noise, noise / sequences + std::max(0.0, signal)};
}

// By how much the distances of an estimate count: in full, unless it is more than double of what
// the averages were; then its own size is the measure, for the averages have yet to follow.
Scatter damped(const Scatter& before, const Scatter& estimate, bool has_average) {
  auto const by = [&](double was, double is) {
    return has_average && was > 0.0 && is > 2.0 * was ? 2.0 * was / is : 1.0;
  };
  return {by(before.trace, estimate.trace), by(before.signal, estimate.signal)};
}

// Earlier scatter as it would be at today's averages: gradients shrink by orders of magnitude in a
// run's first steps, and what they scattered then is not what they scatter now.
void rescale(GnsHistory& h, const Scatter& before, const Scatter& now) {
  auto const ratio = [](double was, double is) {
    return was > 0.0 && is > 0.0 ? std::clamp(is / was, 0.2, 5.0) : 1.0;
  };
  double const trace = ratio(before.trace, now.trace), signal = ratio(before.signal, now.signal);
  h.trace_noise.unit *= trace * trace;
  h.signal_noise.unit *= signal * signal;
  h.covariance.unit *= trace * signal;
}

double variance_of(const AverageNoise& noise) {
  return noise.factor * noise.unit;
}

struct Interval {
  double low = 0.0, high = 0.0;
};

// Fieller: the phi with (trace - phi signal)^2 <= t^2 Var(trace - phi signal), a quadratic in phi.
// None where it is not bounded. A noise scale below 0 is no batch: the final number is clamped.
std::optional<Interval> ratio_interval(const GnsHistory& h, double t) {
  double const tt = variance_of(h.trace_noise), ss = variance_of(h.signal_noise);
  // After a change of layout the three units may disagree a little on the correlation.
  double const most = std::sqrt(tt * ss);
  double const ts = std::clamp(variance_of(h.covariance), -most, most);
  double const a = h.signal * h.signal - t * t * ss;
  double const b = h.trace * h.signal - t * t * ts;
  double const c = h.trace * h.trace - t * t * tt;
  if (a <= 0.0) return std::nullopt;
  double const root = std::sqrt(std::max(0.0, b * b - a * c));
  return Interval{std::max(0.0, (b - root) / a), std::max(0.0, (b + root) / a)};
}

// Why nothing may act on averages of enough estimates; empty: no reason.
std::string why_unresolved(const GnsHistory& h, double reach, double confidence) {
  std::string const interval = fmt::format("{:.3g} to {:.3g} at {:.3g} % confidence",
                                           h.signal - reach, h.signal + reach, 100.0 * confidence);
  if (std::abs(h.signal) <= reach)
    return fmt::format(
        "the interval of |G|^2 holds 0 ({}): the mean gradient is lost in noise at this batch; a "
        "larger batch or a longer gns.half_life_tokens shows it sooner",
        interval);
  if (h.signal < 0.0)
    return fmt::format(
        "|G|^2 is below 0 ({}): by chance, or because a norm counts a parameter twice", interval);
  if (h.trace <= 0.0)
    return fmt::format("tr Sigma is {:.3g}, not above 0: the gradients of this batch hardly differ",
                       h.trace);
  return {};
}

}  // namespace

std::string_view name_of(GnsState state) {
  switch (state) {
    case GnsState::cold:
      return "cold";
    case GnsState::warm:
      return "warm";
    case GnsState::unresolved:
      return "unresolved";
  }
  return "?";
}

double half_life_tokens(const Config& config) {
  if (config.gns.half_life_tokens > 0) return static_cast<double>(config.gns.half_life_tokens);
  double const step = static_cast<double>(config.batch.sequences * config.model.seq_len);
  return std::max({1.0, static_cast<double>(config.train.tokens) / 50.0,
                   kLeastEstimates * static_cast<double>(config.gns.every_steps) * step});
}

GnsEstimator::GnsEstimator(double half_life_tokens, double confidence, const GnsHistory& history,
                           double least_estimates)
    : half_life_tokens_(half_life_tokens),
      confidence_(confidence),
      most_half_lives_(least_estimates > 0.0 ? 1.0 / least_estimates
                                             : std::numeric_limits<double>::infinity()),
      history_(history) {
  COPUS_CHECK(half_life_tokens > 0.0, "averages forget over a time above 0");
  COPUS_CHECK(confidence > 0.0 && confidence < 1.0, "a confidence lies between 0 and 1");
  normal_quantile_ = detail::normal_quantile(confidence);
}

void GnsEstimator::add(const LineFit& fit, double sequences, std::int64_t tokens) {
  GnsHistory& h = history_;
  COPUS_CHECK(tokens >= h.tokens, "a run's tokens only grow");
  double const half_lives = static_cast<double>(tokens - h.tokens) / half_life_tokens_;
  h.weight *= std::exp2(-std::min(half_lives, most_half_lives_));
  h.weight += sequences;
  double const gain = sequences / h.weight;
  h.tokens = tokens;
  h.estimates += 1;

  // The first estimate has no average before it, and leaves the units as they are.
  double const memory = h.weight_share > 0.0 ? std::max(kUnitMemory, 1.0 / h.weight_share) : 1.0;
  double const distances = static_cast<double>(h.estimates - 1);
  double const unit_gain = distances > 0.0 ? 1.0 / std::min(distances, memory) : 0.0;
  double const off_trace = fit.trace - h.trace, off_signal = fit.signal - h.signal;
  Scatter const before = scatter_of(h.trace, h.signal, sequences);
  auto const [by_trace, by_signal] =
      damped(before, scatter_of(fit.trace, fit.signal, sequences), h.estimates > 1);
  double const far_trace = by_trace * off_trace, far_signal = by_signal * off_signal;
  join(h.trace_noise, far_trace * far_trace, fit.trace_variance, gain, unit_gain);
  join(h.signal_noise, far_signal * far_signal, fit.signal_variance, gain, unit_gain);
  join(h.covariance, far_trace * far_signal, fit.covariance, gain, unit_gain);
  auto const grown = [](double share, double g) { return (1.0 - g) * (1.0 - g) * share + g * g; };
  h.unit_share = grown(h.unit_share, unit_gain);
  h.weight_share = grown(h.weight_share, gain);

  h.trace += gain * off_trace;
  h.signal += gain * off_signal;
  if (distances > 0.0) rescale(h, before, scatter_of(h.trace, h.signal, sequences));
  if (fit.residual) h.double_count.add(*fit.residual);
}

GnsReading GnsEstimator::observe(const StepNorms& norms, std::int64_t tokens) {
  bool const finite = is_finite(norms.first) && is_finite(norms.local) && is_finite(norms.whole);
  if (!finite || norms.whole.parts == 0.0) return reading();
  std::optional<LineFit> const fit = fit_line(norms);
  history_.one_micro_batch = fit ? 0 : 1;
  if (!fit) return reading();
  add(*fit, 1.0 / norms.whole.inverse, tokens);
  GnsReading result = reading();
  result.trace_step = fit->trace;
  result.signal_step = fit->signal;
  return result;
}

GnsReading GnsEstimator::reading() const {
  const GnsHistory& h = history_;
  GnsReading result;
  result.double_count = h.double_count.flagged();
  if (h.one_micro_batch != 0) {
    result.state = GnsState::unresolved;
    result.reason =
        "one micro-batch: the step has a single one in all, and norms at two batch sizes need two; "
        "a smaller batch.micro or more data-parallel ranks give them";
    return result;
  }
  if (h.estimates == 0) return result;

  double const degrees = h.unit_share > 0.0 ? 1.0 / h.unit_share : 0.0;
  bool const has_interval = degrees >= kLeastDegrees;
  double const t = has_interval ? detail::student_quantile(normal_quantile_, degrees) : 0.0;
  if (h.estimates >= kColdEstimates) {
    double const reach = t * std::sqrt(variance_of(h.signal_noise));
    result.reason = why_unresolved(h, reach, confidence_);
    result.state = result.reason.empty() ? GnsState::warm : GnsState::unresolved;
    if (result.state == GnsState::unresolved) return result;
  }
  result.trace = h.trace;
  result.signal = h.signal;
  if (h.trace <= 0.0 || h.signal <= 0.0) return result;
  result.critical_batch = h.trace / h.signal;
  if (!has_interval) return result;
  if (auto const interval = ratio_interval(h, t)) {
    result.low = interval->low;
    result.high = interval->high;
  }
  return result;
}

}  // namespace copus
