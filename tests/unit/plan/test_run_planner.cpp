// Whole runs of a planner against machines that are not as it believes.
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "copus/plan/run_planner.h"

namespace copus {
namespace {

Config small_run() {
  Config config;
  config.model.layers = 4;
  config.model.hidden = 512;
  config.model.heads = 8;
  config.model.kv_heads = 8;
  config.model.ffn = 1408;
  config.model.vocab = 1024;
  config.model.seq_len = 512;
  config.batch.sequences = config.batch.min = config.batch.max = 32;
  config.parallel.recompute = Recompute::none;
  config.train.tokens = 1'000'000'000;
  config.adapt.mode = AdaptMode::act;
  config.adapt.interval_steps = 20;
  config.adapt.min_dwell_steps = 20;
  config.cluster.gpus_per_node = 4;
  return config;
}

using Machine = std::function<double(const Configuration&)>;  // seconds of a step, on average

struct Course {
  std::vector<Configuration> tried;  // every change but the rollbacks
  int rollbacks = 0;
  Configuration end;
};

// As Run and Adapter do it, on one rank and without training.
Course drive(RunPlanner& planner, const Machine& machine, Configuration present, int steps,
             double noise) {
  std::mt19937 random(9);
  std::normal_distribution<double> normal;
  Course course;
  std::int64_t since = -1, look = kFirstLook;
  bool pending = false;
  Configuration before;
  auto const go = [&](const Configuration& to, std::int64_t step) {
    planner.changed(present.shape, to.shape, step, 0.5);
    present = to;
    since = -1;
    look = kFirstLook;
  };
  for (std::int64_t step = 1; step <= steps; ++step) {
    double const seconds = machine(present) * std::exp(noise * normal(random));
    if (since >= 0) planner.observe(present, seconds, {});
    ++since;
    if (pending && since >= look) {
      Verdict const verdict = planner.settle(step, look >= kLastLook);
      look *= 2;
      pending = verdict.ruling == Ruling::wait;
      if (verdict.ruling == Ruling::roll_back) {
        ++course.rollbacks;
        go(before, step);
      }
    }
    if (step % 20 != 0 || pending) continue;
    Moment const now{step, step * present.batch * 512, {}};
    Decision const decision = planner.decide(now, present, true);
    if (decision.change != Change::layout) continue;
    before = present;
    course.tried.push_back(decision.to);
    pending = true;
    go(decision.to, step);
  }
  course.end = present;
  return course;
}

}  // namespace

TEST_CASE("a run that was right from the start tries what looks better, and comes back to stay") {
  Config const config = small_run();
  Cluster const cluster = cluster_of(config.cluster, hardware_preset("a100-sxm-40gb"));
  Configuration start{{{}, 2, Recompute::none}, 32};
  start.shape.layout.pp = 4;
  RunPlanner planner(config, cluster, 4, start), untouched = planner;
  // Whatever else is tried takes three times as long as believed.
  Machine const machine = [&](const Configuration& c) {
    return untouched.predicted_seconds(c) * (c.shape == start.shape ? 1.0 : 3.0);
  };
  Course const course = drive(planner, machine, start, 2000, 0.03);
  CAPTURE(course.rollbacks, to_string(course.end));
  CHECK(course.rollbacks >= 1);
  CHECK(course.end.shape == start.shape);
  // Held back for 40, 80, 160 ... steps, a layout comes back six times at most in 2,000 steps; and
  // its measured cost speaks against it as well.
  for (const HeldBack& held : planner.memory().state.held) CHECK(held.rollbacks <= 2);
  CHECK(course.rollbacks <= 20);
}

TEST_CASE("a run on a machine as believed ends in the best layout and is never rolled back") {
  Config const config = small_run();
  Cluster const cluster = cluster_of(config.cluster, hardware_preset("a100-sxm-40gb"));
  Configuration start{{{}, 1, Recompute::none}, 32};
  start.shape.layout.tp = 4;
  RunPlanner planner(config, cluster, 4, start), untouched = planner;
  Machine const machine = [&](const Configuration& c) { return untouched.predicted_seconds(c); };
  Course const course = drive(planner, machine, start, 1500, 0.03);
  CAPTURE(to_string(course.end), course.tried.size());
  CHECK(course.rollbacks == 0);
  CHECK(course.tried.size() >= 1);
  CHECK(course.tried.size() <= 4);
  CHECK(machine(course.end) < 0.8 * machine(start));
}

TEST_CASE("a check corrects the critical batch that decisions go by") {
  Config config = small_run();
  config.batch.min = 8;
  config.batch.max = 128;
  config.adapt.calibration = 2.0;
  Cluster const cluster = cluster_of(config.cluster, hardware_preset("a100-sxm-40gb"));
  Configuration start{{{}, 1, Recompute::none}, 32};
  start.shape.layout.dp = 4;
  RunPlanner planner(config, cluster, 4, start);
  GnsReading noise;
  noise.state = GnsState::warm;
  noise.critical_batch = 20.0, noise.low = 18.0, noise.high = 22.0;
  CHECK(planner.decide({100, 100 * 32 * 512, noise}, start, false).critical_batch == Approx(40.0));
  // (phi + 32) / (phi + 64) is 0.9 at 256.
  Check const check{4.0, {{32, 64, 1e-3, 3.9, 1.0, 0.01}, {64, 32, 1e-3, 3.91, 0.9, 0.01}}};
  CheckFinding const found = planner.learn(check, noise);
  CHECK(*found.critical_batch == Approx(256.0));
  CHECK(planner.memory().correction == Approx(6.4));
  CHECK(planner.decide({200, 200 * 32 * 512, noise}, start, false).critical_batch == Approx(256.0));
  // A noise scale that grows takes the correction with it.
  noise.critical_batch = 40.0, noise.low = 36.0, noise.high = 44.0;
  CHECK(planner.decide({300, 300 * 32 * 512, noise}, start, false).critical_batch == Approx(512.0));
}

TEST_CASE("a change of micro-batch that was measured prices the next one, a switch another") {
  Config const config = small_run();
  Cluster const cluster = cluster_of(config.cluster, hardware_preset("a100-sxm-40gb"));
  Configuration start{{{}, 1, Recompute::none}, 32};
  start.shape.layout.dp = 4;
  RunPlanner planner(config, cluster, 4, start);
  StepShape micro = start.shape, layout = start.shape;
  micro.micro = 2;
  layout.layout.zero = 1;
  planner.changed(start.shape, micro, 10, 0.25);
  CHECK(planner.memory().micro_seconds == 0.25);
  CHECK(planner.memory().switch_seconds == 0.0);
  planner.changed(micro, layout, 20, 4.0);
  CHECK(planner.memory().micro_seconds == 0.25);
  CHECK(planner.memory().switch_seconds == 4.0);
}

}  // namespace copus
