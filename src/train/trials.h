// The trials at a run's start, on every rank: each takes its turn, then the fastest is gone on
// with. Rank 0's times decide.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "copus/comm/communicator.h"
#include "copus/core/config.h"
#include "copus/plan/trials.h"
#include "copus/train/run_plan.h"

namespace copus {

// Every rank calls it: what rank 0 finds on this machine.
std::vector<RunPlan> starting_plans(const Config& config, const Cluster& cluster,
                                    Communicator& world);

class Trials {
 public:
  // The run is in the first of the plans, of which there are two or more.
  Trials(Communicator& world, std::vector<RunPlan> plans);

  // After every step but the first of a trial; every rank.
  void add(double seconds) { times_.add(seconds); }
  bool due() const { return times_.steps() == kHopelessAfter || times_.steps() >= kTrialSteps; }
  struct Outcome {
    RunPlan plan;       // to go on with
    bool over = false;  // it is the fastest, and not the next trial
    std::string words;
  };
  // Every rank together, when due; nothing while the present trial goes on.
  std::optional<Outcome> next();
  // The run could not go on in what next() gave: no steps of it will come.
  void refused() { refused_ = true; }

 private:
  Communicator& world_;
  std::vector<RunPlan> plans_;
  TrialTimes times_;
  bool refused_ = false;  // the present trial
};

}  // namespace copus
