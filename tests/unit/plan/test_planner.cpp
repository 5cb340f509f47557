#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "copus/plan/goodput.h"
#include "copus/plan/planner.h"

namespace copus {
namespace {

StepShape data_parallel() {
  StepShape shape;
  shape.layout.dp = 4;
  return shape;
}
StepShape tensor_parallel() {
  StepShape shape;
  shape.layout.tp = 4;
  return shape;
}

// Steps of 1 s + 1/64 s a sequence for dp 4: x = t0 / t1 = 64 sequences. tp 4 has no start-up cost
// and, at 2/64 s a sequence, is half as fast in the long run.
PlanTable two_layouts(double tensor_seconds = 2.0) {
  PlanTable table;
  for (std::int64_t batch : {16, 32, 64, 128, 256, 512, 1024, 2048}) {
    table.push_back({{data_parallel(), batch}, {1.0, 4.0 / 64}});
    table.push_back({{tensor_parallel(), batch}, {0.0, tensor_seconds / 64}});
  }
  return table;
}

PlanTable one_layout() {
  PlanTable table;
  for (const PlanRow& row : two_layouts()) {
    if (row.configuration.shape == data_parallel()) table.push_back(row);
  }
  return table;
}

NoiseScale noise_of(double critical_batch, double log_width = 0.2) {
  return {critical_batch, critical_batch * std::exp(-log_width),
          critical_batch * std::exp(log_width), true};
}

Situation at(const StepShape& shape, std::int64_t batch, const NoiseScale& noise) {
  Situation now;
  now.present = {shape, batch};
  now.noise = noise;
  now.step = 1000;
  now.horizon_tokens = 1e9;
  now.switch_seconds = 1.0;
  now.sequence_tokens = 1000;
  return now;
}

// Both layouts have run long enough to be known to a percent.
LiveCosts well_known(const PlanTable& table = two_layouts()) {
  LiveCosts live;
  for (const PlanRow& row : table) {
    for (int i = 0; i < 40; ++i) {
      observe(live, row.configuration.shape, row.predicted, row.micro_batches(),
              row.predicted.seconds(row.micro_batches()));
    }
  }
  return live;
}

// A decision that acts needs two in a row.
Decision decided(const PlanTable& table, const LiveCosts& live, const PlannerRules& rules,
                 const Situation& now) {
  PlannerState state;
  Decision const first = decide(table, live, rules, now, state);
  CHECK(first.change == Change::none);
  return decide(table, live, rules, now, state);
}

}  // namespace

TEST_CASE(
    "at the best batch of the closed form nothing changes; far from it the batch moves there") {
  // x = 64 and phi = 1024: the plain objective's best batch is 256.
  LiveCosts const live = well_known();
  PlannerRules const rules;
  Decision const stay =
      decided(one_layout(), live, rules, at(data_parallel(), 256, noise_of(1024)));
  CHECK(stay.change == Change::none);
  CHECK(stay.to == stay.from);
  CHECK_THAT(stay.reason, Catch::StartsWith("hold: nothing within reach"));
  for (std::int64_t batch : {32, 64}) {
    Decision const up =
        decided(one_layout(), live, rules, at(data_parallel(), batch, noise_of(1024)));
    CHECK(up.change == Change::batch);
    CHECK(up.to.batch == 2 * batch);  // as far as the trust region lets it
    CHECK(up.cost_seconds == 0.0);
    CHECK(up.probability > rules.confidence);
    double const b = static_cast<double>(batch);
    double const gain = goodput(Objective::plain, 2 * b / (64 + 2 * b), 2 * b, 1024) /
                        goodput(Objective::plain, b / (64 + b), b, 1024);
    CHECK(up.predicted / up.current == Approx(gain).epsilon(1e-6));
    CHECK_THAT(up.reason, Catch::Contains("critical batch 1024") && Catch::Contains("plain"));
    CHECK(up.runner_up.has_value());
  }
  Decision const down =
      decided(one_layout(), live, rules, at(data_parallel(), 2048, noise_of(1024)));
  CHECK(down.change == Change::batch);
  CHECK(down.to.batch == 1024);
}

TEST_CASE("a batch change needs its margin with the confidence asked for, to the point") {
  // From 256 to 512 the gain is the margin at phi_m, in closed form: the crossing with a rate that
  // is 1 + margin times slower. Above phi_m by z standard deviations the probability is cdf(z).
  LiveCosts const live = well_known();
  PlannerRules rules;
  rules.margin = 0.02;
  double const slow = 512.0 / (64 + 512) / 1.02, now_rate = 256.0 / (64 + 256);
  double const limit = *crossing(Objective::plain, {now_rate, 256}, {slow, 512});
  double const width = 0.2, deviation = width / 1.6448536;  // of a 90 % interval
  for (double z : {0.5, 1.2, 1.4, 2.5}) {
    Decision const d =
        decided(one_layout(), live, rules,
                at(data_parallel(), 256, noise_of(limit * std::exp(z * deviation), width)));
    CAPTURE(z, d.reason);
    // 33 equally likely points: within half a point's weight, and a per mille of error in the
    // speeds
    // that widens the step from one point to the next.
    CHECK(d.probability == Approx(0.5 * std::erfc(-z / std::sqrt(2.0))).margin(1.5 / 33));
    CHECK((d.change == Change::batch) == (z > 1.2816));
  }
}

TEST_CASE("calibration scales the noise scale, and objectives have their own optimum") {
  LiveCosts const live = well_known();
  PlannerRules rules;
  rules.calibration = 4.0;
  Decision const d = decided(one_layout(), live, rules, at(data_parallel(), 256, noise_of(256)));
  CHECK(d.critical_batch == Approx(1024));
  CHECK(d.change == Change::none);
  rules.calibration = 1.0;
  rules.objective = Objective::sqrt_lr;  // the best batch for x = 64, phi = 1024 is 1246
  Decision const up = decided(one_layout(), live, rules, at(data_parallel(), 512, noise_of(1024)));
  CHECK(up.change == Change::batch);
  CHECK(up.to.batch == 1024);
}

TEST_CASE("a layout changes when what it saves over the horizon pays the switch, and not before") {
  LiveCosts const live = well_known();
  PlannerRules const rules;
  // Batch 64: dp 4 needs 2 s, tp 4 as well; batch 32: 1.5 s against 1 s. Noise 36: best is small.
  Situation now = at(data_parallel(), 32, noise_of(10, 0.05));
  Decision const go = decided(two_layouts(), live, rules, now);
  CAPTURE(go.reason);
  REQUIRE(go.change == Change::layout);
  CHECK(go.to.shape == tensor_parallel());
  CHECK(go.cost_seconds == 1.0);
  // What is left of the run takes S seconds here; the better goodput saves S (1 - g0 / g1) of them.
  double const saved_share = 1.0 - go.current / go.predicted;
  double const seconds = 1.05 * 100.0 / saved_share;  // for a switch of 100 s with its margin
  now.switch_seconds = 100.0;
  now.horizon_tokens = 1.02 * seconds * go.current_speed;
  CHECK(decided(two_layouts(), live, rules, now).change == Change::layout);
  now.horizon_tokens = 0.98 * seconds * go.current_speed;
  Decision const stay = decided(two_layouts(), live, rules, now);
  CHECK_FALSE(stay.to.shape == tensor_parallel());
}

TEST_CASE("a noise scale that will soon cross back shortens the horizon") {
  // dp 4 at 512: 56.9 sequences/s; tp 4 at 256: 53.3, which at phi = 1000 is worth 12.9 % more, and
  // 4.2 % more than dp 4 at 256.
  PlanTable const table = two_layouts(1.2);
  LiveCosts const live = well_known(table);
  PlannerRules const rules;
  Situation now = at(data_parallel(), 512, noise_of(1000, 0.05));
  Decision const go = decided(table, live, rules, now);
  CAPTURE(go.reason);
  REQUIRE(go.change == Change::layout);
  CHECK(go.to.batch == 256);
  REQUIRE(go.crossing);
  // (T1 B2 - T2 B1) / (T2 - T1) with T1 = 512/9 and T2 = 64/1.2.
  CHECK(*go.crossing == Approx(3584.0).epsilon(1e-6));
  now.switch_seconds = 100.0;
  CHECK(decided(table, live, rules, now).change == Change::layout);
  // Growing by a factor e in 100,000 tokens, the crossing comes before the switch has paid.
  now.noise_growth = 1.0 / 1e5;
  Decision const stay = decided(table, live, rules, now);
  CHECK(stay.to.shape == data_parallel());
  CHECK(stay.to.batch == 256);  // which costs nothing
}

TEST_CASE("warm-up, dwell and an unresolved noise scale hold, and say so") {
  LiveCosts const live = well_known();
  PlannerRules const rules;
  Situation now = at(data_parallel(), 32, noise_of(1024));
  now.warming_up = true;
  Decision d = decided(one_layout(), live, rules, now);
  CHECK(d.change == Change::none);
  CHECK_THAT(d.reason, Catch::Contains("warming up"));
  now.warming_up = false;
  PlannerState state;
  note_change(state, 990);
  for (int i = 0; i < 3; ++i) d = decide(one_layout(), live, rules, now, state);
  CHECK(d.change == Change::none);
  CHECK_THAT(d.reason, Catch::Contains("10 of 50 steps"));
  now.noise.resolved = false;
  d = decided(one_layout(), live, rules, now);
  CHECK(d.change == Change::none);
  CHECK_THAT(d.reason, Catch::Contains("unresolved"));
  // The layout may still change at the same batch.
  d = decided(two_layouts(), live, rules, now);
  CHECK(d.change == Change::layout);
  CHECK(d.to.batch == 32);
  now.noise = {1024, 900, std::numeric_limits<double>::infinity(), true};
  CHECK(decided(one_layout(), live, rules, now).change == Change::none);
}

TEST_CASE("of two configurations as good as each other none is changed to and fro") {
  // Two layouts that have both run, one a percent faster: their difference is not worth a switch.
  PlanTable table;
  table.push_back({{data_parallel(), 64}, {0.0, 0.100}});
  table.push_back({{tensor_parallel(), 64}, {0.0, 0.099 / 4}});
  LiveCosts live;
  for (const PlanRow& row : table) {
    for (int i = 0; i < 60; ++i) {
      observe(live, row.configuration.shape, row.predicted, row.micro_batches(),
              row.predicted.seconds(row.micro_batches()));
    }
  }
  PlannerRules const rules;
  CHECK(decided(table, live, rules, at(data_parallel(), 64, noise_of(500))).change == Change::none);
  CHECK(decided(table, live, rules, at(tensor_parallel(), 64, noise_of(500))).change ==
        Change::none);
}

TEST_CASE("a prediction is compared with the present by the same corrected model") {
  // Predicted to be equal; the present one takes twice its prediction. A candidate judged by its
  // prediction alone would look twice as good.
  PlanTable table;
  table.push_back({{data_parallel(), 64}, {0.0, 0.1}});
  table.push_back({{tensor_parallel(), 64}, {0.0, 0.1 / 4}});
  LiveCosts live;
  for (int i = 0; i < 60; ++i) observe(live, data_parallel(), {0.0, 0.1}, 16, 3.2);
  PlannerRules const rules;
  Decision const d = decided(table, live, rules, at(data_parallel(), 64, noise_of(500)));
  CHECK(d.change == Change::none);
  REQUIRE(d.runner_up);
  CHECK(d.runner_up_goodput == Approx(d.current).epsilon(1e-6));
}

TEST_CASE("a sure gain is found behind any number of layouts that promise more and are not sure") {
  // The present shape is known; twenty others look 8 % better and have never run.
  PlanTable table;
  table.push_back({{data_parallel(), 64}, {1.0, 4.0 / 64}});
  table.push_back({{data_parallel(), 128}, {1.0, 4.0 / 64}});
  LiveCosts const live = well_known(table);
  double const twice = goodput(Objective::plain, 128.0 * 1000.0 / 3.0, 128.0, 200.0) /
                       goodput(Objective::plain, 64.0 * 1000.0 / 2.0, 64.0, 200.0);
  REQUIRE(twice > 1.06);
  for (int v = 1; v <= 20; ++v) {
    StepShape unseen;
    unseen.layout.pp = 4;
    unseen.layout.virtual_stages = v;
    table.push_back({{unseen, 128}, {2.7, 0.3 / 128}});
  }
  Situation const now = at(data_parallel(), 64, noise_of(200, 0.02));
  PlannerRules rules;
  rules.margin = 0.03;
  Decision const d = decided(table, live, rules, now);
  CAPTURE(d.reason, d.predicted / d.current, twice);
  CHECK(d.change == Change::batch);
  CHECK(d.to.batch == 128);
  REQUIRE(d.runner_up);
  CHECK(d.runner_up->shape.layout.pp == 4);
  CHECK(d.runner_up_goodput > d.predicted);
}

TEST_CASE("what was rolled back is not tried again at once, and twice as long the next time") {
  // The model goes on believing that tp 4 is better: nothing but the rollback speaks against it.
  LiveCosts const live = well_known();
  PlannerRules rules;
  rules.min_dwell_steps = 50;
  rules.interval_steps = 100;
  PlannerState state;
  Situation now = at(data_parallel(), 32, noise_of(10, 0.05));
  std::vector<std::int64_t> tried;
  for (now.step = 100; now.step <= 3000; now.step += 100) {
    Decision const d = decide(two_layouts(), live, rules, now, state);
    if (d.change != Change::layout) {
      bool const held = !state.held.empty() && state.held[0].until_step > now.step;
      if (held) CHECK_FALSE((d.runner_up && d.runner_up->shape == tensor_parallel()));
      if (held && now.step > tried.back() + 50)
        CHECK_THAT(d.reason, Catch::Contains("is held back until step"));
      continue;
    }
    tried.push_back(now.step);
    note_change(state, now.step + 10);
    note_failure(state, rules, d.to.shape.layout, 0, now.step + 10);
  }
  // A wait of 200, 400, 800 ... steps from the rollback, then two decisions that agree.
  CHECK(tried == std::vector<std::int64_t>{200, 600, 1200, 2200});
}

TEST_CASE("a micro-batch that was rolled back holds back itself, not its layout") {
  PlannerState state;
  StepShape other = data_parallel();
  other.micro = 4;
  note_failure(state, {}, other.layout, other.micro, 100);
  REQUIRE(state.held.size() == 1);
  CHECK(state.held[0].holds(other));
  other.micro = 2;
  CHECK_FALSE(state.held[0].holds(other));
}

TEST_CASE("a change of the micro-batch alone is priced by what such changes take") {
  StepShape large = data_parallel();
  large.micro = 4;
  PlanTable table;
  table.push_back({{data_parallel(), 64}, {0.0, 0.1}});
  table.push_back({{large, 64}, {0.0, 0.3}});  // a quarter less time a step
  LiveCosts const live = well_known(table);
  Situation now = at(data_parallel(), 64, noise_of(500));
  now.switch_seconds = 1e9;  // moving state is out of the question
  now.micro_seconds = 0.5;
  Decision const go = decided(table, live, {}, now);
  CAPTURE(go.reason);
  CHECK(go.change == Change::layout);
  CHECK(go.to.shape.micro == 4);
  CHECK(go.cost_seconds == 0.5);
  now.micro_seconds = 1e9;
  CHECK(decided(table, live, {}, now).change == Change::none);
}

TEST_CASE("the reason says why the noise scale is unresolved, in a sentence") {
  LiveCosts const live = well_known();
  Situation now = at(data_parallel(), 32, {});
  now.noise.why = "too few estimates so far";
  Decision const layout = decided(two_layouts(), live, {}, now);
  CAPTURE(layout.reason);
  CHECK_THAT(layout.reason, Catch::Contains("under plain goodput; the noise scale is unresolved "
                                            "(too few estimates so far), so the batch stays;"));
  Decision const none = decided(one_layout(), live, {}, now);
  CHECK_THAT(none.reason, Catch::EndsWith("(too few estimates so far), so the batch stays"));
}

namespace {

// Of a thousand traces of 40 decisions at the best configuration of phi = 1024, how many change
// anything. The estimate wanders about phi as a smoothed one does (correlation 0.7 from one
// decision to the next, standard deviations of 10 to 40 %, an honest 90 % interval); steps vary by
// 3 %.
int traces_that_change(const PlannerRules& rules) {
  PlanTable const table = two_layouts();
  std::mt19937 random(11);
  std::normal_distribution<double> normal;
  constexpr double kCorrelation = 0.7;
  int changed = 0;
  for (int trace = 0; trace < 1000; ++trace) {
    double const deviation = 0.1 + 0.3 * (trace % 10) / 9.0;
    LiveCosts live;
    PlannerState state;
    double wander = normal(random);
    bool any = false;
    for (int interval = 0; interval < 40 && !any; ++interval) {
      for (int step = 0; step < 10; ++step) {
        observe(live, data_parallel(), {1.0, 4.0 / 64}, 64, 5.0 * std::exp(0.03 * normal(random)));
      }
      wander = kCorrelation * wander + std::sqrt(1 - kCorrelation * kCorrelation) * normal(random);
      Situation now = at(data_parallel(), 256,
                         noise_of(1024 * std::exp(deviation * wander), 1.645 * deviation));
      now.step = 100 * (interval + 1);
      any = decide(table, live, rules, now, state).change != Change::none;
    }
    changed += any ? 1 : 0;
  }
  return changed;
}

}  // namespace

TEST_CASE("noise alone changes nothing: at most one percent of a thousand traces") {
  CHECK(traces_that_change({}) <= 10);
  // It is the margin and the confidence that hold: the same traces change without them.
  PlannerRules loose;
  loose.margin = 0.0;
  loose.confidence = 0.5;
  CHECK(traces_that_change(loose) > 100);
}

TEST_CASE("a real shift of the noise scale acts within three intervals") {
  PlannerRules const rules;
  std::mt19937 random(5);
  std::normal_distribution<double> normal;
  int late = 0;
  for (int trace = 0; trace < 200; ++trace) {
    LiveCosts live = well_known();
    PlannerState state;
    double const deviation = 0.2;
    int acted = 0;
    for (int interval = 1; interval <= 3 && acted == 0; ++interval) {
      // From 1024 to twelve times that: 512 is then worth 8.9 % more than 256.
      Situation now = at(data_parallel(), 256,
                         noise_of(12288 * std::exp(deviation * normal(random)), 1.645 * deviation));
      now.step = 1000 + 100 * interval;
      Decision const d = decide(one_layout(), live, rules, now, state);
      if (d.change == Change::batch && d.to.batch == 512) acted = interval;
    }
    if (acted == 0) ++late;
  }
  CHECK(late <= 10);
}

TEST_CASE("a table has what fits, and nothing that does not") {
  std::vector<Candidate> candidates(3);
  candidates[0].batch = 8;
  candidates[0].cost.alpha = 2.0;
  candidates[0].cost.beta = 3.0;
  candidates[1].feasible = false;
  candidates[2].batch = 16;
  PlanTable const table = table_of(candidates);
  REQUIRE(table.size() == 2);
  CHECK(table[0].configuration.batch == 8);
  CHECK(table[0].predicted.seconds(8) == 26.0);
  CHECK(table[1].configuration.batch == 16);
}

}  // namespace copus
