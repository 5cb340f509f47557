// Simulated runs against closed forms, and against what must hold for any of them.
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "copus/core/error.h"
#include "copus/plan/goodput.h"
#include "copus/plan/simulate.h"

namespace copus {
namespace {

// Two nodes with a slow link between them, so that a step's gradients cost as much as its products
// where the batch is small: what the batch is worth then depends on the noise scale.
Config small_run() {
  Config config;
  config.model.layers = 8;
  config.model.hidden = 1024;
  config.model.heads = 8;
  config.model.kv_heads = 8;
  config.model.ffn = 2816;
  config.model.vocab = 32000;
  config.model.seq_len = 1024;
  config.batch.sequences = 64;
  config.batch.min = 16;
  config.batch.max = 1024;
  config.train.tokens = 1'000'000'000;
  config.adapt.interval_steps = 20;
  config.adapt.min_dwell_steps = 20;
  config.cluster.nodes = 2;
  config.cluster.gpus_per_node = 8;
  config.cluster.internode_gbps_per_gpu = 25.0;
  return config;
}

Cluster cluster_for(const Config& config) {
  return cluster_of(config.cluster, hardware_preset("a100-sxm-80gb"));
}

Simulation simulated(const Config& config, const NoiseCurve& noise,
                     std::optional<double> switch_seconds = {}) {
  Cluster const cluster = cluster_for(config);
  return simulate(config, cluster, static_cast<int>(cluster.world()), {noise, switch_seconds});
}

NoiseCurve constant(double critical_batch) {
  return NoiseCurve(
      std::vector<NoisePoint>{{0.0, critical_batch, critical_batch / 1.1, critical_batch * 1.1}});
}
// From `start` to a hundred times that in the course of 1B useful tokens.
NoiseCurve rising(double start) {
  return NoiseCurve(PowerLaw{start, 1e6, 2.0 / 3.0}, 0.1);
}
// Noise-free for a while, then noisy: no one batch is right for both.
NoiseCurve jump(double useful_tokens) {
  return NoiseCurve(std::vector<NoisePoint>{{0.0, 20.0, 19.0, 21.0},
                                            {useful_tokens, 20.0, 19.0, 21.0},
                                            {useful_tokens + 1e6, 5000.0, 4750.0, 5250.0}});
}

template <class Event>
std::vector<Event> all(const SimulatedRun& run) {
  std::vector<Event> found;
  for (const SimulatedEvent& event : run.events) {
    if (const Event* const one = std::get_if<Event>(&event)) found.push_back(*one);
  }
  return found;
}

std::vector<const SimulatedRun*> runs_of(const Simulation& simulation) {
  return {&simulation.fixed, &simulation.adaptive_batch, &simulation.co_adaptive};
}

double seconds_of(const Config& config, const Configuration& c) {
  std::int64_t const m = PlanRow{c, {}}.micro_batches();
  return step_cost(config.model, c.shape, m, config.train.precision, cluster_for(config),
                   stage_sizes(config.model, c.shape.layout))
      .seconds(m);
}

}  // namespace

TEST_CASE("a fixed run takes its closed form: the goal over a step's progress, times a step") {
  Config const config = small_run();
  double const phi = 200.0;
  Simulation const s = simulated(config, constant(phi));
  // The goal: what train.tokens are worth at batch.sequences, in whole steps.
  double const a_step = 64.0 * 1024.0, steps = std::ceil(1e9 / a_step);
  CHECK(s.useful_tokens == Approx(steps * a_step * phi / (64.0 + phi)));
  double const batch = static_cast<double>(s.fixed.first.batch);
  double const needed = std::ceil(s.useful_tokens / (batch * 1024.0 * phi / (batch + phi)) - 1e-6);
  CHECK(static_cast<double>(s.fixed.end.step) == needed);
  CHECK(s.fixed.end.seconds == Approx(needed * seconds_of(config, s.fixed.first)));
  CHECK(s.fixed.end.tokens == s.fixed.end.step * s.fixed.first.batch * 1024);
  CHECK(s.fixed.switch_seconds == 0.0);
  CHECK(s.fixed.first == s.fixed.last);
}

TEST_CASE("no other fixed layout and batch reaches the goal sooner") {
  Config config = small_run();
  NoiseCurve const noise = rising(20.0);
  Simulation const s = simulated(config, noise);
  for (std::int64_t batch : batches_of(config, 16)) {
    // Another batch alone, asked for by its own: the goal stays that of 64 sequences.
    std::int64_t steps = 0;
    for (double useful = 0.0; useful < s.useful_tokens; ++steps) {
      useful += static_cast<double>(batch * 1024) *
                useful_per_token(config, batch, noise.at(useful).critical_batch);
    }
    for (const Candidate& c : candidates_of(config, cluster_for(config), 16)) {
      if (c.batch != batch || !c.feasible) continue;
      CHECK(static_cast<double>(steps) * c.step_seconds() >= s.fixed.end.seconds * (1.0 - 1e-9));
    }
  }
}

TEST_CASE("every policy reaches the goal, and by less than one step more") {
  Config const config = small_run();
  Simulation const s = simulated(config, rising(20.0));
  for (const SimulatedRun* run : runs_of(s)) {
    CHECK(run->end.useful_tokens >= s.useful_tokens);
    CHECK(run->end.useful_tokens - s.useful_tokens <
          static_cast<double>(run->last.batch * config.model.seq_len));
    CHECK(run->end.useful_tokens <= static_cast<double>(run->end.tokens));
  }
}

TEST_CASE("at a constant noise scale an adaptive run begins in what is best, and stays there") {
  for (double phi : {40.0, 300.0, 4000.0}) {
    CAPTURE(phi);
    Config const config = small_run();
    Simulation const s = simulated(config, constant(phi));
    for (const SimulatedRun* run : runs_of(s)) {
      CHECK(run->layout_changes + run->micro_changes + run->batch_changes == 0);
      CHECK(run->first == run->last);
      // Nothing changes, so all are the best fixed choice; one with a batch that does not divide
      // the tokens evenly may be a step longer.
      CHECK(run->end.seconds <= s.fixed.end.seconds + 2.0 * seconds_of(config, run->last));
    }
    CHECK(s.co_adaptive.decisions > 100);
  }
}

TEST_CASE("a rising noise scale makes the batch grow, and never shrink") {
  Config const config = small_run();
  Simulation const s = simulated(config, rising(20.0));
  for (const SimulatedRun* run : {&s.adaptive_batch, &s.co_adaptive}) {
    CHECK(run->batch_changes >= 1);
    CHECK(run->last.batch >= 2 * run->first.batch);
    for (const SimulatedSwitch& change : all<SimulatedSwitch>(*run)) {
      CHECK(change.to.batch >= change.from.batch);
    }
  }
}

TEST_CASE("a falling noise scale makes the batch shrink") {
  Config const config = small_run();
  Simulation const s = simulated(
      config,
      NoiseCurve(std::vector<NoisePoint>{{0.0, 4000.0, 3800.0, 4200.0}, {4e8, 50.0, 45.0, 55.0}}));
  CHECK(s.adaptive_batch.last.batch < s.adaptive_batch.first.batch);
  CHECK(s.co_adaptive.last.batch < s.co_adaptive.first.batch);
}

TEST_CASE("an adaptive batch alone keeps the layout of the best fixed choice") {
  Config const config = small_run();
  Simulation const s = simulated(config, rising(20.0));
  CHECK(s.adaptive_batch.layout_changes == 0);
  CHECK(s.adaptive_batch.first.shape.layout == s.fixed.first.shape.layout);
  CHECK(s.adaptive_batch.last.shape.layout == s.fixed.first.shape.layout);
  for (const SimulatedRun* run : runs_of(s)) {
    CHECK(run->last.shape.recompute == s.fixed.first.shape.recompute);
  }
}

TEST_CASE("where no one batch is right for the whole run, adapting the batch saves time") {
  Config const config = small_run();
  Simulation const s = simulated(config, jump(2e8), 0.0);
  CHECK(s.adaptive_batch.end.seconds < s.fixed.end.seconds);
  CHECK(s.co_adaptive.end.seconds < s.fixed.end.seconds);
}

TEST_CASE("a run's seconds are those of its steps and its changes, to the last one") {
  Config const config = small_run();
  for (double switch_seconds : {0.0, 30.0}) {
    Simulation const s = simulated(config, rising(20.0), switch_seconds);
    for (const SimulatedRun* run : runs_of(s)) {
      double lost = 0.0;
      std::int64_t batch = 0, micro = 0, layout = 0;
      RunPoint before;
      Configuration now = run->first;
      double seconds = 0.0;
      auto const to_step = [&](std::int64_t step) {
        seconds += static_cast<double>(step - before.step) * seconds_of(config, now);
        before.step = step;
      };
      for (const SimulatedSwitch& change : all<SimulatedSwitch>(*run)) {
        to_step(change.at.step);
        CHECK(change.at.seconds == Approx(seconds));
        CHECK(change.from == now);
        now = change.to;
        seconds += change.seconds;
        lost += change.seconds;
        batch += change.from.batch != change.to.batch;
        micro += change.kind == Change::layout && change.micro_alone;
        layout += change.kind == Change::layout && !change.micro_alone;
        if (change.kind == Change::batch) CHECK(change.seconds == 0.0);
        if (change.kind == Change::layout && !change.micro_alone) {
          CHECK(change.seconds == Approx(switch_seconds).margin(1e-9));
        }
      }
      to_step(run->end.step);
      CHECK(run->end.seconds == Approx(seconds));
      CHECK(run->switch_seconds == Approx(lost));
      CHECK(run->last == now);
      CHECK(std::vector{run->batch_changes, run->micro_changes, run->layout_changes} ==
            std::vector{batch, micro, layout});
    }
  }
}

TEST_CASE("a change of layout that costs more than it could ever save is not made") {
  Config const config = small_run();
  Simulation const s = simulated(config, rising(20.0), 1e9);
  CHECK(s.co_adaptive.layout_changes == 0);
  CHECK(s.co_adaptive.batch_changes >= 1);
}

TEST_CASE("between two changes lies the dwell time, and each was wanted by two decisions") {
  Config const config = small_run();
  Simulation const s = simulated(config, rising(20.0));
  for (const SimulatedRun* run : {&s.adaptive_batch, &s.co_adaptive}) {
    std::int64_t last = 0;
    for (const SimulatedSwitch& change : all<SimulatedSwitch>(*run)) {
      CHECK(change.at.step - last >= config.adapt.min_dwell_steps);
      CHECK(change.at.step % config.adapt.interval_steps == 0);
      last = change.at.step;
    }
    const Decision* before = nullptr;
    std::vector<SimulatedDecision> const decisions = all<SimulatedDecision>(*run);
    for (const SimulatedDecision& d : decisions) {
      if (d.decision.change != Change::none) {
        REQUIRE(before != nullptr);
        CHECK_THAT(before->reason, Catch::StartsWith("hold, to see it once more"));
      }
      before = &d.decision;
    }
    CHECK(static_cast<std::int64_t>(decisions.size()) == run->decisions);
  }
}

TEST_CASE("the learning rate's warm-up holds whatever runs there") {
  Config config = small_run();
  config.schedule.warmup_tokens = 200'000'000;
  Simulation const s = simulated(config, rising(20.0));
  for (const SimulatedRun* run : {&s.adaptive_batch, &s.co_adaptive}) {
    for (const SimulatedSwitch& change : all<SimulatedSwitch>(*run)) {
      CHECK(change.at.tokens >= config.schedule.warmup_tokens);
    }
  }
}

TEST_CASE("before the eighth estimate of the noise scale no batch changes") {
  Config config = small_run();
  config.gns.every_steps = 50;
  // Where it begins is best for 20 sequences alone, and all decisions see 5000.
  Simulation const s = simulated(config, jump(1e5), 0.0);
  std::vector<SimulatedDecision> const decisions = all<SimulatedDecision>(s.adaptive_batch);
  for (const SimulatedDecision& d : decisions) {
    bool const few = d.decision.reason.find("too few estimates so far") != std::string::npos ||
                     d.decision.reason.find("not measured yet") != std::string::npos;
    CHECK(few == (d.at.step < 8 * 50));
    if (few) CHECK(d.decision.to.batch == d.decision.from.batch);
  }
  CHECK(s.adaptive_batch.batch_changes >= 1);
}

TEST_CASE("a noise scale that nobody could tell from anything leaves the batch as it was") {
  Config const config = small_run();
  Simulation const s = simulated(config, NoiseCurve(PowerLaw{20.0, 1e6, 2.0 / 3.0}, 1e6));
  CHECK(s.adaptive_batch.batch_changes == 0);
}

TEST_CASE("the same simulation twice is the same, to the bit") {
  Config const config = small_run();
  Simulation const a = simulated(config, rising(20.0)), b = simulated(config, rising(20.0));
  for (std::size_t i = 0; i < 3; ++i) {
    const SimulatedRun &x = *runs_of(a)[i], &y = *runs_of(b)[i];
    CHECK(x.end.seconds == y.end.seconds);
    CHECK(x.end.useful_tokens == y.end.useful_tokens);
    CHECK(x.mfu == y.mfu);
    CHECK(x.last == y.last);
    REQUIRE(x.events.size() == y.events.size());
  }
}

TEST_CASE("calibration and noise scale are one number to progress and planner alike") {
  Config config = small_run();
  Simulation const plain = simulated(config, rising(20.0));
  config.adapt.calibration = 4.0;
  Simulation const calibrated = simulated(config, rising(5.0));
  CHECK(calibrated.useful_tokens == Approx(plain.useful_tokens));
  CHECK(calibrated.co_adaptive.end.seconds == Approx(plain.co_adaptive.end.seconds));
  CHECK(calibrated.co_adaptive.last == plain.co_adaptive.last);
}

TEST_CASE("under every objective the goal is reached, and no layout has a key that does nothing") {
  Config config = small_run();
  config.batch_rule.lr = LrRule::sqrt;
  for (Objective objective : {Objective::plain, Objective::sqrt_lr, Objective::normalized}) {
    config.adapt.objective = objective;
    Simulation const s = simulated(config, rising(20.0));
    for (const SimulatedRun* run : runs_of(s)) {
      CHECK(run->end.useful_tokens >= s.useful_tokens);
      for (const Configuration& c : {run->first, run->last}) {
        const Layout& layout = c.shape.layout;
        CHECK((layout.pp > 1 || layout.virtual_stages == 1));
        CHECK((layout.tp > 1 || !layout.sequence_parallel));
      }
    }
  }
}

TEST_CASE("with one batch to choose from, only layouts are chosen") {
  Config config = small_run();
  config.batch.min = config.batch.max = 64;
  Simulation const s = simulated(config, rising(20.0));
  for (const SimulatedRun* run : runs_of(s)) {
    CHECK(run->batch_changes == 0);
    CHECK(run->last.batch == 64);
  }
}

TEST_CASE("a recording of a simulated fixed run is the curve it was played along") {
  // Simulated steps written as metrics, read back, and played once more.
  Config const config = small_run();
  NoiseCurve const noise = rising(20.0);
  Simulation const s = simulated(config, noise);
  std::string metrics;
  for (const SimulatedStep& step : all<SimulatedStep>(s.fixed)) {
    metrics += "{\"tokens\": " + std::to_string(step.at.tokens) +
               ", \"batch\": " + std::to_string(step.configuration.batch) +
               ", \"gns\": {\"state\": \"warm\", \"critical_batch\": " +
               std::to_string(step.noise.critical_batch) +
               ", \"low\": " + std::to_string(step.noise.low) +
               ", \"high\": " + std::to_string(step.noise.high) + "}}\n";
  }
  NoiseCurve const recorded = recorded_noise_curve(config, metrics, "metrics.jsonl");
  // Between two recorded steps the recording's progress is that of the value before.
  double const end = s.fixed.end.useful_tokens;
  CHECK(*recorded.end() <= end);
  CHECK(*recorded.end() >= 0.98 * end);
}

TEST_CASE("what is not played is refused by its key, and so is what would take hours") {
  Config config = small_run();
  CHECK(simulation_problems(config).empty());
  config.batch.schedule = {{0, 64}, {1000, 128}};
  config.adapt.script.push_back({});
  config.adapt.check_every_tokens = 5;
  config.train.tokens = std::int64_t{1} << 50;
  std::vector<std::string> const problems = simulation_problems(config);
  REQUIRE(problems.size() == 4);
  CHECK_THAT(problems[0], Catch::StartsWith("batch.schedule: "));
  CHECK_THAT(problems[1], Catch::StartsWith("adapt.script: "));
  CHECK_THAT(problems[2], Catch::StartsWith("adapt.check_every_tokens: "));
  CHECK_THAT(problems[3], Catch::StartsWith("train.tokens: "));
  Config often = small_run();
  often.train.tokens = 100'000'000'000;
  often.adapt.interval_steps = 1;
  REQUIRE(simulation_problems(often).size() == 1);
  CHECK_THAT(simulation_problems(often)[0], Catch::StartsWith("adapt.interval_steps: 1 makes"));
}

TEST_CASE("a model that no rank can hold is refused with what is missing") {
  Config config = small_run();
  config.model.hidden = 65536;
  config.model.ffn = 65536 * 3;
  config.model.layers = 80;
  CHECK_THROWS_WITH(simulated(config, constant(100.0)),
                    Catch::Contains("no layout of this model fits") && Catch::Contains("needs"));
}

}  // namespace copus
