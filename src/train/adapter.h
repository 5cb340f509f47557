// The planner inside the running job: what steps measure goes in, and every so many steps a
// decision comes out. Rank 0 decides; the others act on what they receive.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "copus/comm/communicator.h"
#include "copus/core/config.h"
#include "copus/plan/planner.h"
#include "copus/train/run_plan.h"
#include "copus/train/step_record.h"

namespace copus {

class Adapter {
 public:
  // Every rank makes it; rank 0 alone prices the candidates. Layout keys that the configuration
  // gives stay as they are, those left "auto" are the planner's, and so are batch.min to batch.max.
  Adapter(const Config& config, const Cluster& cluster, Communicator& world, const RunPlan& first);

  // What this step is expected to take, in seconds, on rank 0.
  std::optional<double> predicted_seconds(const RunPlan& plan, std::int64_t batch);
  // On rank 0, after every step but the first in its layout, which touches new memory.
  void observe(const StepRecord& record, const RunPlan& plan);

  struct Outcome {
    std::optional<RunPlan> change;     // to be carried out; the same on every rank
    std::optional<Decision> decision;  // rank 0
  };
  // Whether a decision is due after this step.
  bool due(std::int64_t step) const;
  // Every rank together, when due.
  Outcome decide(const Counters& now, const std::optional<GnsReading>& noise, const RunPlan& plan,
                 std::int64_t batch);
  // After a change of layout that took so many seconds, or one that was refused.
  void changed(std::int64_t step, double seconds);
  void refused() { last_.reset(); }

  // Every rank together, some steps after a change of layout by decide(): whether it is kept.
  // `speed`: measured, tokens/s, on rank 0. Otherwise the outcome's change goes back.
  bool awaits_verdict() const { return last_.has_value(); }
  struct Settled {
    std::optional<RunPlan> back;
    std::string reason;  // rank 0
    double predicted_speed = 0.0;
  };
  Settled settle(std::int64_t step, double speed);

 private:
  StepShape shape_of(const RunPlan& plan) const;
  const StepLine& line_of(const RunPlan& plan, std::int64_t batch);
  const PlanRow& row_of(const RunPlan& plan, std::int64_t batch);
  Situation situation_of(const Counters& now, const std::optional<GnsReading>& noise,
                         const RunPlan& plan, std::int64_t batch) const;
  std::optional<RunPlan> share(std::optional<RunPlan> change);

  Config config_;
  Cluster cluster_;
  Communicator& world_;
  Recompute recompute_;
  PlannerRules rules_;
  PlanTable table_;
  LiveCosts live_;
  PlannerState state_;
  double switch_seconds_ = 0.0;
  struct Last {
    Decision decision;
    RunPlan before;
  };
  // The plan that was priced last: every step asks for the present one.
  struct Priced {
    RunPlan plan;
    std::int64_t batch = 0;
    StepLine line;
  };
  std::optional<Priced> priced_;
  std::optional<Last> last_;  // a change of layout that is not settled; on every rank
};

}  // namespace copus
