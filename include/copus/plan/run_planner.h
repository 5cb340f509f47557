// What a planner knows inside one run: fed with what steps measure, asked for decisions. The live
// job and a replay of its metrics drive this same value.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "copus/plan/check.h"
#include "copus/plan/gns.h"
#include "copus/plan/planner_memory.h"
#include "copus/plan/verdict.h"

namespace copus {

// Where the run stands when a decision is asked for.
struct Moment {
  std::int64_t step = 0, tokens = 0;
  std::optional<GnsReading> noise;
};

// What a run could do, priced: the candidates of keys left "auto" and of batch.min to batch.max
// that fit, that have a noise scale to go on by, and whose names differ in what they do.
PlanTable planned_rows(const Config& config, const Cluster& cluster, int world);
// Seconds of a change of layout until one has been measured.
double guessed_switch_seconds(const Config& config, const Cluster& cluster);

class RunPlanner {
 public:
  // `present`: what the run starts in. Keys that the configuration gives stay as they are, those
  // left "auto" are the planner's, and so are batch.min to batch.max.
  RunPlanner(const Config& config, const Cluster& cluster, int world, const Configuration& present,
             PlannerMemory memory = {});

  StepShape shape(const Layout& layout, std::int64_t micro) const;
  // Of the next step, as the latest ones went.
  double predicted_seconds(const Configuration& present);
  // A step that was not the first in its shape. `pace`: seconds between its micro-batches.
  void observe(const Configuration& present, double seconds, std::optional<double> pace);

  // `acts`: a decision for a change will be carried out, and then waits for its verdict where it
  // makes a new engine.
  Decision decide(const Moment& now, const Configuration& present, bool acts);
  // The change from one to another was carried out in so many seconds.
  void changed(const StepShape& from, const StepShape& to, std::int64_t step, double seconds);
  // It was not, and nothing has changed; it is not wanted again at once.
  void refused(const StepShape& to, std::int64_t step);
  // From now on decisions go by what the check found.
  CheckFinding learn(const Check& check, const std::optional<GnsReading>& noise);
  // On the steps since the last change of shape; a rollback is noted.
  Verdict settle(std::int64_t step, bool last);

  const PlannerMemory& memory() const { return memory_; }
  // Whether there is another configuration than the present one; under a schedule of batches,
  // another shape.
  bool has_choice() const;

 private:
  // Speeds of the latest steps in one configuration.
  struct Window {
    Configuration configuration;
    std::vector<double> rates;  // tokens/s
  };

  const PlanRow& row_of(const Configuration& present);
  const StepLine& line_of(const Configuration& present);
  LivePrice priced(const Configuration& present);
  Situation situation_of(const Moment& now, const Configuration& present) const;
  PlanTable scheduled(std::int64_t batch) const;

  Config config_;
  Cluster cluster_;
  PlannerRules rules_;
  PlanTable table_;
  PlannerMemory memory_;
  struct Priced {
    Configuration configuration;
    StepLine line;
  };
  std::optional<Priced> priced_;  // the latest: every step asks for the present one
  Window now_, before_;
  // How much longer the latest steps took than they are priced at (a natural logarithm). For what
  // is predicted of the next one alone: other shapes' prices and decisions know nothing of it.
  double recent_ = 0.0;
  std::optional<Decision> pending_;  // awaits its verdict
  std::int64_t change_before_ = 0;   // the step of the change before the pending one
};

}  // namespace copus
