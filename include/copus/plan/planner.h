// The decision: stay, change the batch, or change the layout. A pure function of what the run
// knows.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "copus/core/config.h"
#include "copus/plan/candidates.h"
#include "copus/plan/gns.h"
#include "copus/plan/live_costs.h"

namespace copus {

// The noise scale as the run estimates it: critical batch in sequences, uncalibrated, and its
// interval. Nothing is read from these unless `resolved`.
struct NoiseScale {
  double critical_batch = 0.0, low = 0.0, high = 0.0;
  bool resolved = false;
  std::string why = {};  // it is not resolved
};
NoiseScale noise_of(const std::optional<GnsReading>& reading);

// What the run does, or could do.
struct Configuration {
  StepShape shape;
  std::int64_t batch = 0;
  bool operator==(const Configuration&) const = default;
};
std::string to_string(const Configuration& configuration);

// One configuration that fits, priced once; corrected by what is measured at each decision.
struct PlanRow {
  Configuration configuration;
  StepLine predicted;
  std::int64_t micro_batches() const {
    return configuration.batch / (configuration.shape.layout.dp * configuration.shape.micro);
  }
};
using PlanTable = std::vector<PlanRow>;
PlanTable table_of(const std::vector<Candidate>& candidates);  // those that are feasible

struct PlannerRules {
  Objective objective = Objective::plain;
  double calibration = 1.0;  // from the measured to the useful critical batch
  double margin = 0.05;      // gain that a change must promise
  double confidence = 0.9;  // of the noise scale's interval, and with which a change must be better
  // A prediction that turns out wrong is rolled back after the dwell time, so less certainty is
  // asked of it than of the noise scale, which nothing checks.
  double layout_confidence = 0.75;
  double trust = 2.0;  // a decision changes the batch by at most this factor
  std::int64_t min_dwell_steps = 50;
  std::int64_t interval_steps = 100;  // between decisions
};
PlannerRules rules_of(const Config& config);

// The moment of a decision. The present configuration is one of the table's rows.
struct Situation {
  Configuration present;
  NoiseScale noise;
  std::int64_t step = 0;
  bool warming_up = false;      // of the learning rate: the batch is held
  double horizon_tokens = 0.0;  // over which a change must pay
  double noise_growth = 0.0;    // d log(critical batch) / d token, where a trend is known
  double switch_seconds = 0.0;  // of a change of layout, as measured
  double micro_seconds = 0.0;   // of a change of the micro-batch alone, which moves no state
  std::int64_t sequence_tokens = 1;
};

// What was refused or rolled back, and is not tried again before `until_step`.
struct HeldBack {
  Layout layout;
  std::int64_t micro = 0;  // 0: whatever the micro-batch
  std::int64_t until_step = 0;
  std::int64_t failures = 0;  // each doubles the wait
  bool operator==(const HeldBack&) const = default;
  bool holds(const StepShape& shape) const {
    return shape.layout == layout && (micro == 0 || shape.micro == micro);
  }
};

// What the planner remembers between decisions.
struct PlannerState {
  std::int64_t last_change_step = 0;  // 0: none yet
  // A change acts when two decisions in a row want it: an estimate that was far off once is not.
  std::optional<Configuration> wanted;
  std::vector<HeldBack> held;
  bool operator==(const PlannerState&) const = default;
};

// layout: anything that makes a new engine, the micro-batch too.
enum class Change { none, batch, layout };

struct Decision {
  Change change = Change::none;
  Configuration from, to;  // equal when nothing changes
  std::string reason;      // for people
  // Goodput (useful tokens a second) of `to` and `from`, and their speeds in tokens a second.
  double predicted = 0.0, current = 0.0;
  double predicted_speed = 0.0, current_speed = 0.0;
  double error = 0.0;           // relative, of predicted_speed against current_speed
  double probability = 0.0;     // that the gain is what it must be
  double cost_seconds = 0.0;    // of the change
  double critical_batch = 0.0;  // calibrated; 0 when unresolved
  // Where `from` and the best other configuration are worth the same.
  std::optional<double> crossing;
  std::optional<Configuration> runner_up;
  double runner_up_goodput = 0.0, runner_up_speed = 0.0;
};

// Batch alone (same shape): acts when P(gain > margin) > confidence. Layout or micro-batch: when it
// is better with layout_confidence in all and with confidence as far as the noise scale goes, and
// the seconds saved over the horizon (or until the noise scale's trend crosses back) exceed the
// switch's times 1 + margin. Two decisions in a row must want it. Held through warm-up and for
// min_dwell_steps after a change; while the noise scale is unresolved the batch stays.
Decision decide(const PlanTable& table, const LiveCosts& live, const PlannerRules& rules,
                const Situation& situation, PlannerState& state);

// After a change was carried out at `step`.
void note_change(PlannerState& state, std::int64_t step);
// After a change to `layout` with micro-batches of `micro` (0: whatever they are) was refused or
// rolled back at `step`: it is not tried for twice the dwell time, or interval, four times after
// the second failure, and so on. What was rolled back has run, so its measured cost stands beyond
// that; but what looked good in spite of a measurement once may do so again.
void note_failure(PlannerState& state, const PlannerRules& rules, const Layout& layout,
                  std::int64_t micro, std::int64_t step);

}  // namespace copus
