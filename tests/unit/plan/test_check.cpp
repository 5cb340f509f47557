#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "copus/plan/check.h"
#include "copus/plan/goodput.h"

namespace copus {
namespace {

const Objective kObjectives[] = {Objective::plain, Objective::sqrt_lr, Objective::normalized};

// Branches of a loss that falls by exactly what the formula gives at a critical batch of `truth`.
Check obedient(Objective objective, std::int64_t batch, const std::vector<std::int64_t>& larger,
               double truth) {
  constexpr double kFrom = 4.0, kGain = 0.1;  // at the run's own batch
  Check check;
  check.from_loss = kFrom;
  auto const at = [&](std::int64_t b) {
    return progress_per_token(objective, static_cast<double>(b), truth);
  };
  check.branches.push_back({batch, 64, 1e-3, kFrom - kGain, 1.0, 0.01});
  for (std::int64_t const b : larger) {
    double const progress = at(b) / at(batch);
    check.branches.push_back({b, 16, 2e-3, kFrom - kGain * progress, progress, 0.01});
  }
  return check;
}

PartedLoss parted(std::vector<double> parts) {
  PartedLoss loss{0.0, std::move(parts)};
  for (double part : loss.parts) loss.mean += part;
  return loss;
}

}  // namespace

TEST_CASE("a check of a loss that obeys the formula gives its critical batch back") {
  for (Objective const objective : kObjectives) {
    for (double const truth : {3.0, 20.0, 64.0, 700.0}) {
      for (double const off : {0.1, 1.0, 9.0}) {  // of the noise scale from the truth
        for (const std::vector<std::int64_t>& larger :
             {std::vector<std::int64_t>{32, 64}, std::vector<std::int64_t>{32}}) {
          CAPTURE(static_cast<int>(objective), truth, off, larger.size());
          CheckFinding const found =
              find(obedient(objective, 16, larger, truth), objective, truth * off, 1.0);
          REQUIRE(found.critical_batch);
          CHECK(!found.at_least);
          // A sum of squares is known to half of a double's digits near its least, and the branches
          // of a batch far below the truth differ by little.
          CHECK(*found.critical_batch == Approx(truth).epsilon(1e-4));
          CHECK(found.correction == Approx(1.0 / off).epsilon(1e-4));
        }
      }
    }
  }
}

TEST_CASE("a check moves the calibration by a factor of 16 at most, and says so") {
  CheckFinding const up =
      find(obedient(Objective::plain, 16, {32, 64}, 1000.0), Objective::plain, 10.0, 1.0);
  CHECK(up.correction == Approx(16.0).epsilon(1e-6));
  CHECK_THAT(up.reason, Catch::Contains("no further up"));
  CheckFinding const down =
      find(obedient(Objective::plain, 16, {32, 64}, 10.0), Objective::plain, 1000.0, 1.0);
  CHECK(down.correction == Approx(1.0 / 16).epsilon(1e-6));
  CHECK_THAT(down.reason, Catch::Contains("no further down"));
}

TEST_CASE("branches that contradict each other are met in the middle") {
  Check check = obedient(Objective::plain, 16, {32, 64}, 40.0);
  double const two = check.branches[1].progress, four = check.branches[2].progress;
  check.branches[1].progress = two + 0.05;
  CheckFinding const found = find(check, Objective::plain, 40.0, 1.0);
  REQUIRE(found.critical_batch);
  CHECK(*found.critical_batch > 40.0);
  // Nowhere on either side is the sum of squares smaller.
  auto const squares = [&](double phi) {
    double const a = (phi + 16) / (phi + 32) - check.branches[1].progress;
    double const b = (phi + 16) / (phi + 64) - four;
    return a * a + b * b;
  };
  for (double const factor : {0.5, 0.9, 0.999, 1.001, 1.1, 2.0}) {
    CHECK(squares(*found.critical_batch * factor) > squares(*found.critical_batch));
  }
}

TEST_CASE("larger batches that cost nothing bound the critical batch from below, no more") {
  Check check = obedient(Objective::plain, 16, {32, 64}, 40.0);
  for (Branch& branch : check.branches) branch.progress = 1.0;
  CheckFinding const found = find(check, Objective::plain, 40.0, 1.0);
  REQUIRE(found.critical_batch);
  CHECK(found.at_least);
  // 0.98 is two standard errors below: (phi + 16) / (phi + 64) = 0.98 at 2336, beyond what a check
  // may say; with standard errors of 0.1 it is 0.8, at 176.
  CHECK(found.correction == Approx(16.0).epsilon(1e-6));
  check.branches[1].error = check.branches[2].error = 0.1;
  CHECK(*find(check, Objective::plain, 40.0, 1.0).critical_batch == Approx(176.0).epsilon(1e-6));
  // What was known takes no step back.
  CHECK(*find(check, Objective::plain, 40.0, 8.0).critical_batch == Approx(320.0).epsilon(1e-6));
  // Under sqrt_lr a batch twice as large that costs nothing brings sqrt(2) as much.
  Check grown = obedient(Objective::sqrt_lr, 16, {32}, 40.0);
  grown.branches[1].progress = 1.0;
  CHECK(!find(grown, Objective::sqrt_lr, 40.0, 1.0).at_least);
  grown.branches[1].progress = 1.42;
  CHECK(find(grown, Objective::sqrt_lr, 40.0, 1.0).at_least);
}

TEST_CASE("a branch that diverges, or undoes what was learned, costs all that it can") {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  for (Objective const objective : kObjectives) {
    Check check = obedient(objective, 16, {32, 64}, 1e9);
    Check worse = check;
    check.branches[2].loss = check.branches[2].progress = check.branches[2].error = kNone;
    worse.branches[2].progress = -40.0;
    CheckFinding const diverged = find(check, objective, 100.0, 1.0),
                       undone = find(worse, objective, 100.0, 1.0);
    REQUIRE(diverged.critical_batch);
    CHECK(!diverged.at_least);
    CHECK(std::isfinite(*diverged.critical_batch));
    CHECK(*diverged.critical_batch == *undone.critical_batch);
    CHECK_THAT(diverged.reason, Catch::Contains("64 diverged"));
  }
}

TEST_CASE("without a clear gain at the run's own batch nothing is learned, and a reason given") {
  Check const right = obedient(Objective::plain, 16, {32, 64}, 40.0);
  auto const learns_nothing = [](const Check& check, const std::string& reason) {
    CheckFinding const found = find(check, Objective::plain, 40.0, 2.5);
    CHECK(!found.critical_batch);
    CHECK(found.correction == 2.5);
    CHECK_THAT(found.reason, Catch::Contains("nothing learned: ") && Catch::Contains(reason));
  };
  Check check = right;
  check.branches[0].error = 0.34;  // of the gain: not three standard errors
  learns_nothing(check, "not clearly above 0");
  check = right;
  check.branches[0].loss = check.from_loss + 0.1;
  learns_nothing(check, "gained -0.1000 nats");
  check = right;
  check.branches[0].loss = std::numeric_limits<double>::quiet_NaN();
  learns_nothing(check, "batch 16 itself diverged");
  check = right;
  check.branches.resize(1);
  learns_nothing(check, "no batch beside the run's own");
}

TEST_CASE("progress is the ratio of gains, its error that of the windows' disagreement") {
  PartedLoss const from = parted({1.0, 1.2, 0.8, 1.0});
  // Each window gains in proportion: nothing is uncertain, whatever their sizes.
  PartedLoss const own = parted({0.9, 1.08, 0.72, 0.9}), after = parted({0.95, 1.14, 0.76, 0.95});
  Branch branch;
  measure_own(branch, from, own);
  CHECK(branch.loss == Approx(3.6));
  CHECK(branch.progress == 1.0);
  CHECK(std::abs(branch.error) < 1e-12);
  measure_other(branch, from, own, after);
  CHECK(branch.loss == Approx(3.8));
  CHECK(branch.progress == Approx(0.5));
  CHECK(std::abs(branch.error) < 1e-12);
  // Residuals of +-0.01 over four parts: sqrt(4/3 * 4 * 1e-4) over a gain of 0.4.
  PartedLoss const uneven = parted({0.94, 1.15, 0.75, 0.96});
  measure_other(branch, from, own, uneven);
  CHECK(branch.progress == Approx(0.5));
  CHECK(branch.error == Approx(std::sqrt(4.0 / 3.0 * 4e-4) / 0.4));
  // One stretch of windows cannot disagree with itself: nothing is certain.
  measure_own(branch, parted({4.0}), parted({3.0}));
  CHECK(std::isinf(branch.error));
}

TEST_CASE("the error of progress is what it scatters by, and a gain of nothing is seldom clear") {
  std::mt19937 random(5);
  std::normal_distribution<double> normal;
  constexpr int kParts = 16, kTrials = 2000;
  int inside = 0, clear = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    PartedLoss from, own, after, same;
    for (int i = 0; i < kParts; ++i) {
      double const size = 1.0 + 0.2 * normal(random), common = 0.03 * normal(random);
      from.parts.push_back(size);
      own.parts.push_back(size * (1.0 - 0.1) + common);
      after.parts.push_back(size * (1.0 - 0.07) + 0.7 * common + 0.02 * normal(random));
      same.parts.push_back(size + 0.03 * normal(random));
    }
    for (PartedLoss* loss : {&from, &own, &after, &same}) *loss = parted(loss->parts);
    Branch branch;
    measure_other(branch, from, own, after);
    inside += std::abs(branch.progress - 0.7) < 2.0 * branch.error ? 1 : 0;
    Check idle{from.mean, {{16, 64, 1e-3}, {32, 32, 1e-3}}};
    measure_own(idle.branches[0], from, same);
    measure_other(idle.branches[1], from, same, same);
    clear += find(idle, Objective::plain, 40.0, 1.0).critical_batch ? 1 : 0;
  }
  // 2 standard errors of 15 degrees of freedom hold 93.6 %, 3 on one side leave out 0.45 %; four
  // standard deviations of the counts beside.
  CHECK(inside > kTrials * 0.936 - 4 * std::sqrt(kTrials * 0.936 * 0.064));
  CHECK(clear < kTrials * 0.0045 + 4 * std::sqrt(kTrials * 0.0045));
}

TEST_CASE("what a check finds is remembered, and without a noise scale nothing is") {
  PlannerMemory memory;
  PlannerRules rules;
  rules.calibration = 2.0;
  Check const check = obedient(Objective::plain, 16, {32, 64}, 90.0);
  CheckFinding found = learn(memory, check, rules, {10.0, 8.0, 12.0, true});
  CHECK(*found.critical_batch == Approx(90.0).epsilon(1e-4));
  CHECK(memory.correction == Approx(4.5).epsilon(1e-4));
  found = learn(memory, check, rules, {.why = "cold"});
  CHECK(!found.critical_batch);
  CHECK(memory.correction == Approx(4.5).epsilon(1e-4));
}

}  // namespace copus
