// Whether a change kept its promise, told from noise: the speeds before and after it with what the
// scatter of their steps leaves open.
#pragma once
#include <cstdint>
#include <limits>
#include <span>
#include <string>

#include "copus/plan/planner.h"

namespace copus {

// Median tokens/s of some steps, and an interval that holds the true median.
struct Speed {
  std::int64_t steps = 0;
  double median = 0.0;
  double low = 0.0, high = std::numeric_limits<double>::infinity();
  // Half the interval, relative; infinite while the steps are too few for one.
  double error() const { return (high - low) / (2.0 * median); }
};

// The interval is that of order statistics, so nothing is assumed of how steps scatter, at 0.6 %
// outside in all (2.75 standard deviations of a sign count). Neighbouring steps that are slow
// together count as fewer: the sign count's variance grows by (1 + r) / (1 - r), r the correlation
// of neighbours' sides of the median. Ten independent steps are the fewest that have an interval.
Speed speed_of(std::span<const double> tokens_per_second);

// After how many steps a verdict is asked for: these, doubled each time, up to the last.
inline constexpr std::int64_t kFirstLook = 10, kLastLook = 80;

enum class Ruling { wait, keep, roll_back };
struct Verdict {
  Ruling ruling = Ruling::keep;
  std::string reason;
  Speed before = {}, after = {};  // what was compared; no steps: nothing was
  double predicted_speed = 0.0;
};

// By steps before and after the change. The prediction is the decision's ratio of speeds times
// `before`, so that both sides are medians of the same machine. Rolled back when all that `after`
// may be falls short of the prediction by more than its error and is worth less than all that
// `before` may be. Waits while neither that nor the opposite is certain and the intervals are wider
// than the promised gain; not when `last`: what cannot be told from noise is kept. Without steps
// before, the decision's own estimate stands for them.
Verdict verify(const Decision& decision, const Speed& before, const Speed& after, bool last);

}  // namespace copus
