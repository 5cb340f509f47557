// Whole runs of a planner against machines that are not as it believes.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "copus/core/median.h"
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

Cluster four_gpus(const Config& config) {
  return cluster_of(config.cluster, hardware_preset("a100-sxm-40gb"));
}

// Of 32 sequences.
Configuration start_in(int dp, int tp, int pp, std::int64_t micro = 1) {
  Configuration start{{{}, micro, Recompute::none}, 32};
  start.shape.layout.dp = dp;
  start.shape.layout.tp = tp;
  start.shape.layout.pp = pp;
  return start;
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
  Cluster const cluster = four_gpus(config);
  Configuration const start = start_in(1, 1, 4, 2);
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
  for (const HeldBack& held : planner.memory().state.held) CHECK(held.failures <= 2);
  CHECK(course.rollbacks <= 20);
}

TEST_CASE("a run on a machine as believed ends in the best layout and is never rolled back") {
  Config const config = small_run();
  Cluster const cluster = four_gpus(config);
  Configuration const start = start_in(1, 4, 1);
  RunPlanner planner(config, cluster, 4, start), untouched = planner;
  Machine const machine = [&](const Configuration& c) { return untouched.predicted_seconds(c); };
  Course const course = drive(planner, machine, start, 1500, 0.03);
  CAPTURE(to_string(course.end), course.tried.size());
  CHECK(course.rollbacks == 0);
  CHECK(course.tried.size() >= 1);
  CHECK(course.tried.size() <= 4);
  CHECK(machine(course.end) < 0.8 * machine(start));
}

TEST_CASE("slow steps that come in runs are predicted, and no decision goes by them") {
  Config const config = small_run();
  Cluster const cluster = four_gpus(config);
  Configuration const start = start_in(1, 4, 1);
  RunPlanner planner(config, cluster, 4, start);
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  std::vector<double> errors, by_price;
  for (int step = 0; step < 600; ++step) {
    // A neighbour comes and goes every twelve steps.
    double const seconds = (step / 12 % 2 == 0 ? 1.0 : 1.25) * std::exp(0.02 * normal(random));
    StepLine const line = price(planner.memory().live, start.shape, {1.0, 1.0}, 32).line;
    if (step >= 50) {
      errors.push_back(std::abs(planner.predicted_seconds(start) / seconds - 1.0));
      by_price.push_back(std::abs(line.seconds(32) / seconds - 1.0));
    }
    planner.observe(start, seconds, {});
  }
  CHECK(median(errors) < 0.05);
  CHECK(median(by_price) > 0.07);
  // What the present is worth is still its line's, whatever the latest steps were.
  Decision const decision = planner.decide({600, 600 * 32 * 512, {}}, start, false);
  double const seconds = 32 * 512 / decision.current_speed;
  CHECK(seconds == Approx(1.12).epsilon(0.05));
}

TEST_CASE("a switch that is refused is not wanted again at once, and others are") {
  Config const config = small_run();
  Cluster const cluster = four_gpus(config);
  Configuration const start = start_in(1, 4, 1);
  RunPlanner planner(config, cluster, 4, start), untouched = planner;
  std::vector<std::pair<std::int64_t, StepShape>> wanted;
  for (std::int64_t step = 1; step <= 1000; ++step) {
    planner.observe(start, untouched.predicted_seconds(start) * (step % 2 == 0 ? 1.01 : 0.99), {});
    if (step % 20 != 0) continue;
    Decision const decision = planner.decide({step, step * 32 * 512, {}}, start, true);
    if (decision.change != Change::layout) {
      // Nothing has changed, so nothing settles.
      CHECK(decision.reason.find("since the last change") == std::string::npos);
      continue;
    }
    wanted.emplace_back(step, decision.to.shape);
    planner.refused(decision.to.shape, step);
  }
  REQUIRE(wanted.size() >= 3);
  CHECK(std::any_of(wanted.begin(), wanted.end(),
                    [&](const auto& one) { return !(one.second == wanted[0].second); }));
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    std::int64_t wait = 40;
    for (std::size_t k = i + 1; k < wanted.size(); ++k) {
      if (!(wanted[k].second == wanted[i].second)) continue;
      CHECK(wanted[k].first - wanted[i].first >= wait);
      break;
    }
  }
  CHECK(planner.memory().state.last_change_step == 0);
}

TEST_CASE("a planner whose keys do nothing has the choice that it would have without them") {
  Config config = small_run();
  config.batch.min = 8;
  config.batch.max = 64;
  config.parallel.tp = 1;
  config.parallel.pp = 1;
  Cluster const cluster = four_gpus(config);
  PlanTable const without = planned_rows(config, cluster, 4);
  config.parallel.sequence_parallel = true;
  config.parallel.virtual_stages = 3;
  PlanTable const with = planned_rows(config, cluster, 4);
  REQUIRE(without.size() > 10);
  REQUIRE(with.size() == without.size());
  for (std::size_t i = 0; i < with.size(); ++i)
    CHECK(with[i].configuration == without[i].configuration);
}

TEST_CASE("a check corrects the critical batch that decisions go by") {
  Config config = small_run();
  config.batch.min = 8;
  config.batch.max = 128;
  config.adapt.calibration = 2.0;
  Cluster const cluster = four_gpus(config);
  Configuration const start = start_in(4, 1, 1);
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
  Cluster const cluster = four_gpus(config);
  Configuration const start = start_in(4, 1, 1);
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
