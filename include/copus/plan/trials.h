// What a run begins with whose layout the planner may choose: the best predictions, each run for a
// few steps, so that the choice between them is one of measurements. These steps train as any.
#pragma once
#include <cstddef>
#include <vector>

#include "copus/plan/run_planner.h"

namespace copus {

// Of each, beside the first one, which touches new memory; after the fewer ones it may be given up.
constexpr std::size_t kTrialSteps = 10, kHopelessAfter = 3;

// At the run's first batch, best predicted first; the keys that the configuration gives stay. All
// are within 30 % of the best (two standard deviations of a prediction that nothing has corrected),
// at most six, two micro-batches a layout, and no more than the run is long enough for: they take
// at most a tenth of its steps, and what they are expected to lose, switches included, is at most 2
// % of its time. Empty where nothing that could run is known.
std::vector<Configuration> trials_of(const Config& config, const Cluster& cluster, int world);

// What steps of each trial took, in seconds.
class TrialTimes {
 public:
  explicit TrialTimes(std::size_t trials) : seconds_(trials) {}

  void add(double seconds) { seconds_[present_].push_back(seconds); }
  std::size_t steps() const { return seconds_[present_].size(); }
  // Each of its steps took half as long again as the median of another trial: no more are needed.
  bool hopeless() const;
  bool at_last() const { return present_ + 1 == seconds_.size(); }
  void next() { ++present_; }
  std::size_t present() const { return present_; }
  bool ran(std::size_t trial) const { return !seconds_[trial].empty(); }
  double median(std::size_t trial) const;  // of one that ran
  std::size_t fastest() const;             // by medians, of those begun; the earlier of equal ones

 private:
  std::vector<std::vector<double>> seconds_;
  std::size_t present_ = 0;
};

}  // namespace copus
