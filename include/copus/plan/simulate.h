// Whole runs at cluster scale, played by the cost model and the planner of a real run: the best
// fixed batch and layout, an adaptive batch, and both adapting, along one noise-scale curve.
//
// All go on until they have made the same progress: that of train.tokens at batch.sequences, in
// useful tokens (plan/noise_curve.h). A step takes exactly the seconds that the cost model gives
// it, a change what the planner books for it; so what differs is only what was chosen.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "copus/plan/noise_curve.h"
#include "copus/plan/verdict.h"

namespace copus {

// A moment of a simulated run, as metrics count it: after `step`.
struct RunPoint {
  std::int64_t step = 0, tokens = 0;
  double useful_tokens = 0.0;
  double seconds = 0.0;  // since the start, changes included
};

struct SimulatedStep {
  RunPoint at;
  Configuration configuration;
  double step_seconds = 0.0, tokens_per_second = 0.0, mfu = 0.0;
  NoisePoint noise;  // the curve's
};
struct SimulatedDecision {
  RunPoint at;
  Decision decision;
};
// Carried out; `at` is before it.
struct SimulatedSwitch {
  RunPoint at;
  Change kind = Change::none;  // layout: also a micro-batch alone
  bool micro_alone = false, rollback = false;
  Configuration from, to;
  double seconds = 0.0;
};
struct SimulatedVerdict {
  RunPoint at;
  Verdict verdict;
};
using SimulatedEvent =
    std::variant<SimulatedStep, SimulatedDecision, SimulatedSwitch, SimulatedVerdict>;

// One policy's run.
struct SimulatedRun {
  Configuration first, last;
  RunPoint end;
  double switch_seconds = 0.0;  // of `end.seconds`
  double mfu = 0.0;             // mean, changes included
  std::int64_t batch_changes = 0, micro_changes = 0, layout_changes = 0, rollbacks = 0;
  std::int64_t decisions = 0;
  // In the order they happened; of steps every adapt.interval_steps-th and the last.
  std::vector<SimulatedEvent> events;
};

enum class Policy { fixed, adaptive_batch, co_adaptive };
std::string_view name_of(Policy policy);  // "static", ...

struct Simulation {
  double useful_tokens = 0.0;  // that every policy makes at least
  SimulatedRun fixed, adaptive_batch, co_adaptive;

  const SimulatedRun& run(Policy policy) const;
};

struct SimulationRules {
  NoiseCurve noise;
  // Of each change of layout, and known to the planner; none: the planner's own estimate, all of
  // the state once over the slowest link.
  std::optional<double> switch_seconds;
};

// What a configuration asks for that is not played, or would take too long: empty when it can be
// simulated.
std::vector<std::string> simulation_problems(const Config& config);

// train.tokens is above 0, and simulation_problems is empty.
// fixed: of all candidates that fit, the one with the shortest time to the goal, known beforehand.
// adaptive_batch: its layout; batch and micro-batch are the planner's. co_adaptive: all keys left
// "auto" are. Both begin with what is best (within that) at the curve's first value, and keep the
// recompute mode of `fixed`. Throws ConfigError when nothing fits.
Simulation simulate(const Config& config, const Cluster& cluster, int world,
                    const SimulationRules& rules);

}  // namespace copus
