// The planner inside the running job, on every rank: rank 0 feeds and asks it, the others act on
// what they receive.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "copus/comm/communicator.h"
#include "copus/core/config.h"
#include "copus/plan/run_planner.h"
#include "copus/train/run_plan.h"
#include "copus/train/step_record.h"

namespace copus {

class Adapter {
 public:
  // Every rank makes it; rank 0 alone prices the candidates. `memory`: a checkpoint's, on rank 0.
  Adapter(const Config& config, const Cluster& cluster, Communicator& world, const RunPlan& first,
          PlannerMemory memory);

  // Whether rank 0 has more than the present configuration to choose from; false on the others.
  bool has_choice() const { return planner_ && planner_->has_choice(); }

  // What this step is expected to take, in seconds, on rank 0.
  std::optional<double> predicted_seconds(const RunPlan& plan, std::int64_t batch);
  // On every rank, after every step but the first in its layout, which touches new memory.
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
  // Rank 0, after a branched check.
  CheckFinding learn(const Check& check, const std::optional<GnsReading>& noise);
  // After a change of layout or micro-batch that took so many seconds, or one that was refused.
  void changed(const RunPlan& from, const RunPlan& to, std::int64_t step, double seconds);
  void refused(const RunPlan& to, std::int64_t step);

  // After a change of layout by decide(), every rank together when a look is due (after 10 steps,
  // 20, 40 and 80): whether it is kept. Otherwise the outcome's change goes back.
  bool awaits_verdict() const { return before_.has_value(); }
  bool look_due() const { return awaits_verdict() && steps_ >= next_look_; }
  struct Settled {
    std::optional<RunPlan> back;
    std::optional<Verdict> verdict;  // rank 0
  };
  // Nothing while more steps are needed.
  std::optional<Settled> settle(std::int64_t step);

  // Rank 0's, for a checkpoint; empty on the others.
  PlannerMemory memory() const { return planner_ ? planner_->memory() : PlannerMemory{}; }

 private:
  Configuration configuration_of(const RunPlan& plan, std::int64_t batch) const;
  std::optional<RunPlan> share(std::optional<RunPlan> change);

  Config config_;
  Communicator& world_;
  std::optional<RunPlanner> planner_;  // rank 0
  std::optional<RunPlan> before_;      // what a change that is not settled has left; on every rank
  std::int64_t steps_ = 0, next_look_ = kFirstLook;
};

}  // namespace copus
