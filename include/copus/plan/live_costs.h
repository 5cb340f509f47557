// What the run itself has measured of its step times: predictions corrected by it.
// A candidate is never compared by prediction against a measured present: shapes that have run have
// a line of their own, all others are scaled by what the measured ones had over their predictions.
#pragma once
#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "copus/plan/cost.h"

namespace copus {

// A step-time line t = alpha + beta m.
struct StepLine {
  double alpha = 0.0, beta = 0.0;
  bool operator==(const StepLine&) const = default;
  double seconds(std::int64_t micro_batches) const {
    return alpha + beta * static_cast<double>(micro_batches);
  }
};

// One shape's steps, each divided by the level of its time: sums that forget (kForget a step), the
// relative residual's mean square, and the prediction they stand beside. Plain numbers: a
// checkpoint or a switch carries them.
struct LiveShape {
  StepShape shape;
  StepLine predicted;
  double weight = 0.0, m = 0.0, mm = 0.0, t = 0.0, mt = 0.0;
  double beta_weight = 0.0, beta = 0.0;  // seconds between micro-batches, measured inside steps
  double residual = 0.0;  // mean square of measured over corrected prediction, less 1
  double share = 0.0;     // weight in the shared factors; recent steps count more
  bool operator==(const LiveShape&) const = default;
};

struct LiveCosts {
  std::vector<LiveShape> shapes;
  // How much longer steps take now than the lines say (a natural logarithm, 0: as long). Other work
  // on the machine, heat or a slow link make every shape slower; without this a shape would look
  // bad for the hour in which it ran.
  double level = 0.0;
  bool operator==(const LiveCosts&) const = default;
};

// As a resumed run believes them: as much as of eight steps, for the machine may be another one.
LiveCosts aged(LiveCosts live);

// One step of `shape` with m micro-batches took `seconds`. `beta` is the steady time between
// micro-batches on the slowest stage where the step measured it.
void observe(LiveCosts& live, const StepShape& shape, const StepLine& predicted,
             std::int64_t micro_batches, double seconds, std::optional<double> beta = {});

// A line as the run knows it, and the relative errors (one standard deviation) to expect of a step
// of so many micro-batches.
struct LivePrice {
  StepLine line;
  double scale_error = 0.0;  // of the whole line: the same for every batch of a shape
  double split_error = 0.0;  // of how the time splits into alpha and beta
  bool measured = false;     // this very shape has run

  double error() const { return std::hypot(scale_error, split_error); }
};

// Until two numbers of micro-batches (or beta itself) have been seen, only the scale of a shape is
// corrected; how its time splits into alpha and beta stays the prediction's, and counts as
// uncertain.
LivePrice price(const LiveCosts& live, const StepShape& shape, const StepLine& predicted,
                std::int64_t micro_batches);

// Relative error of a shape that has never run: 15 % before anything is known, and what the
// measured shapes had among each other as they become more.
double unseen_error(const LiveCosts& live);

}  // namespace copus
