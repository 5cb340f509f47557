// One policy's run, step by step, as train's Run and Adapter go through it.
#pragma once
#include "copus/plan/run_planner.h"
#include "copus/plan/simulate.h"

namespace copus::detail {

// A change that takes no time: to the planner 0 seconds would mean that none has been measured yet.
inline constexpr double kFree = 1e-12;

// What all policies share.
struct Course {
  const Config& config;
  const Cluster& cluster;
  const NoiseCurve& noise;
  double goal = 0.0;  // useful tokens
};

// Useful tokens after a step of `batch` that began with `before`.
double after_step(const Course& course, double before, std::int64_t batch);

class CoursePlayer {
 public:
  // Without a planner the first configuration stays.
  CoursePlayer(const Course& course, const Configuration& first, RunPlanner* planner);
  SimulatedRun play();

 private:
  void use(const Configuration& to);
  void step();
  void measure_noise();
  void note_step();
  void consult();
  void change(const Configuration& to, double booked, bool rollback);
  void settle();

  const Course& course_;
  RunPlanner* planner_;
  Configuration present_;
  double step_seconds_ = 0.0;   // of present_
  std::optional<double> pace_;  // seconds between its micro-batches, where a step measures them
  RunPoint at_;
  SimulatedRun run_;
  std::int64_t estimates_ = 0;
  std::optional<GnsReading> reading_;
  // The change that awaits its verdict: what it left, and what the planner booked for it.
  struct Pending {
    Configuration before;
    double seconds = 0.0;
  };
  std::optional<Pending> pending_;
  bool fresh_ = true;  // the next step is the first in its shape
  std::int64_t steps_ = 0, next_look_ = kFirstLook;
};

}  // namespace copus::detail
