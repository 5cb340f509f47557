#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <random>

#include "copus/plan/live_costs.h"

namespace copus {
namespace {

StepShape shape_of(int dp, int tp, std::int64_t micro = 1) {
  StepShape shape;
  shape.layout.dp = dp;
  shape.layout.tp = tp;
  shape.micro = micro;
  return shape;
}

// So many steps of `count` micro-batches that took `seconds` each.
void observe_steps(int steps, LiveCosts& live, const StepShape& shape, const StepLine& predicted,
                   std::int64_t count, double seconds) {
  for (int i = 0; i < steps; ++i) observe(live, shape, predicted, count, seconds);
}

constexpr double kRounding = 1e-9;

}  // namespace

TEST_CASE("with one number of micro-batches only the scale is corrected") {
  LiveCosts live;
  StepLine const predicted{0.2, 0.1};
  observe_steps(20, live, shape_of(4, 1), predicted, 8, 1.5);
  LivePrice const same = price(live, shape_of(4, 1), predicted, 8);
  CHECK(same.measured);
  CHECK(same.line.seconds(8) == Approx(1.5).epsilon(kRounding));
  CHECK(same.line.alpha / same.line.beta == Approx(2.0).epsilon(kRounding));  // as predicted
  // Another number of micro-batches is less sure, by how much of alpha moves.
  LivePrice const other = price(live, shape_of(4, 1), predicted, 16);
  CHECK(same.split_error == 0.0);
  // alpha's part: 0.2 of 1.0 at 8, 0.2 of 1.8 at 16; a prediction is off by unseen_error.
  double const moved = 0.2 / 1.0 - 0.2 / 1.8;
  CHECK(other.split_error == Approx(unseen_error(live) * moved).epsilon(1e-6));
  CHECK(other.error() > same.error());
}

TEST_CASE("two numbers of micro-batches tell alpha from beta, whatever was predicted") {
  LiveCosts live;
  StepLine const predicted{0.5, 0.01}, real{0.1, 0.2};
  observe_steps(30, live, shape_of(2, 1), predicted, 4, real.seconds(4));
  observe_steps(30, live, shape_of(2, 1), predicted, 8, real.seconds(8));
  LivePrice const learned = price(live, shape_of(2, 1), predicted, 32);
  // The first steps at 8 count as at most 1.5 times what was believed of them.
  CHECK(learned.line.beta == Approx(0.2).epsilon(0.15));
  CHECK(learned.line.seconds(8) == Approx(real.seconds(8)).epsilon(0.05));
}

TEST_CASE("a measured beta tells them apart at once") {
  LiveCosts live;
  StepLine const predicted{0.5, 0.01};
  observe(live, shape_of(2, 1), predicted, 8, 1.0, 0.1);
  LivePrice const learned = price(live, shape_of(2, 1), predicted, 16);
  CHECK(learned.line.beta == Approx(0.1).epsilon(kRounding));
  CHECK(learned.line.alpha == Approx(0.2).epsilon(kRounding));
}

TEST_CASE("a shape that has never run is corrected by what the measured ones had") {
  LiveCosts live;
  StepLine const predicted{0.2, 0.1};
  LivePrice const before = price(live, shape_of(1, 4), {0.3, 0.4}, 8);
  CHECK_FALSE(before.measured);
  CHECK(before.line.alpha == 0.3);
  CHECK(before.error() == Approx(0.15));
  // The present one takes twice what was predicted: so will the other, and they stay comparable.
  observe_steps(20, live, shape_of(4, 1), predicted, 8, 2.0);
  LivePrice const after = price(live, shape_of(1, 4), {0.3, 0.4}, 8);
  CHECK(after.line.alpha == Approx(0.6).epsilon(kRounding));
  CHECK(after.line.beta == Approx(0.8).epsilon(kRounding));
}

TEST_CASE("a micro-batch that has never run is corrected by what its own layout had") {
  LiveCosts live;
  StepLine const predicted{0.2, 0.1};
  observe_steps(20, live, shape_of(4, 1), predicted, 8, 1.0);
  observe_steps(20, live, shape_of(1, 4), predicted, 8, 3.0);
  CHECK(price(live, shape_of(1, 4, 2), {0.2, 0.2}, 4).line.seconds(4) == Approx(3.0));
  CHECK(price(live, shape_of(4, 1, 2), {0.2, 0.2}, 4).line.seconds(4) == Approx(1.0));
}

TEST_CASE("a resumed run keeps what was measured, and lets eight new steps outweigh it") {
  LiveCosts live;
  StepLine const predicted{0.0, 0.1};
  observe_steps(300, live, shape_of(4, 1), predicted, 10, 1.0);
  live = aged(live);
  CHECK(price(live, shape_of(4, 1), predicted, 10).line.seconds(10) == Approx(1.0));
  observe_steps(9, live, shape_of(4, 1), predicted, 10, 1.4);
  CHECK(price(live, shape_of(4, 1), predicted, 10).line.seconds(10) > 1.2);
}

TEST_CASE(
    "predictions that agree among measured shapes are trusted more, and less if they do not") {
  auto const error_after = [](double spread) {
    LiveCosts live;
    for (int tp : {1, 2, 4, 8}) {
      double const off = tp < 4 ? 1.0 - spread : 1.0 + spread;
      observe(live, shape_of(8 / tp, tp), {0.1, 0.1}, 8, 0.9 * off);
    }
    return unseen_error(live);
  };
  CHECK(unseen_error({}) == Approx(0.15));
  // Two shapes' worth of 15 % and four of none: 0.15 sqrt(2 / 6).
  CHECK(error_after(0.0) == Approx(0.15 * std::sqrt(2.0 / 6)).epsilon(kRounding));
  CHECK(error_after(0.4) > 0.25);
}

TEST_CASE("after a few intervals the median error of noisy steps is within five percent") {
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  LiveCosts live;
  StepLine const predicted{0.1, 0.1}, real{0.12, 0.16};
  std::vector<double> errors;
  for (int i = 0; i < 300; ++i) {
    double const seconds = real.seconds(8) * std::exp(0.03 * normal(random));
    double const expected = price(live, shape_of(4, 1), predicted, 8).line.seconds(8);
    if (i >= 50) errors.push_back(std::abs(seconds / expected - 1));
    observe(live, shape_of(4, 1), predicted, 8, seconds);
  }
  std::nth_element(errors.begin(), errors.begin() + 125, errors.end());
  CHECK(errors[125] < 0.05);
  CHECK(price(live, shape_of(4, 1), predicted, 8).error() < 0.02);
}

TEST_CASE("a machine that becomes slower is slower in every shape, within some thirty steps") {
  LiveCosts live;
  StepLine const predicted{0.0, 0.1};
  StepShape const present = shape_of(4, 1), other = shape_of(2, 2), unseen = shape_of(1, 4);
  observe_steps(100, live, other, predicted, 10, 1.1);
  observe_steps(100, live, present, predicted, 10, 1.0);
  double const before = price(live, unseen, predicted, 10).line.seconds(10);
  // Something else runs beside it from now on.
  observe_steps(36, live, present, predicted, 10, 1.3);
  auto const now = [&](const StepShape& shape) {
    return price(live, shape, predicted, 10).line.seconds(10);
  };
  CHECK(now(present) == Approx(1.3).epsilon(0.05));
  // So would they be: the other one does not look better for having run in quieter times.
  CHECK(now(other) / now(present) == Approx(1.1).epsilon(0.05));
  CHECK(now(unseen) / before == Approx(1.3).epsilon(0.05));
}

TEST_CASE("skewed steps do not move what other shapes are believed to take") {
  // Most steps a little short, a few long, as on a shared machine; the other shape is a tenth
  // slower and does not run.
  for (double const often : {0.02, 0.1}) {
    std::mt19937 random(5);
    std::normal_distribution<double> normal;
    std::uniform_real_distribution<double> uniform;
    LiveCosts live;
    StepLine const predicted{0.0, 0.1};
    StepShape const present = shape_of(4, 1), other = shape_of(2, 2);
    auto const step = [&](const StepShape& shape, double seconds) {
      double const pause = uniform(random) < often ? 1.5 : 1.0;
      observe(live, shape, predicted, 10, seconds * pause * std::exp(0.05 * normal(random)));
    };
    for (int i = 0; i < 200; ++i) step(other, 1.1);
    for (int i = 0; i < 20'000; ++i) step(present, 1.0);
    double const ratio = price(live, other, predicted, 10).line.seconds(10) /
                         price(live, present, predicted, 10).line.seconds(10);
    CHECK(ratio == Approx(1.1).epsilon(0.06));
  }
}

TEST_CASE("a resumed run takes no earlier hour's pace along") {
  LiveCosts live;
  StepLine const predicted{0.0, 0.1};
  StepShape const present = shape_of(4, 1), other = shape_of(2, 2);
  observe_steps(100, live, other, predicted, 10, 1.1);
  observe_steps(100, live, present, predicted, 10, 1.0);
  observe_steps(300, live, present, predicted, 10, 1.3);
  double const before = price(live, other, predicted, 10).line.seconds(10);
  live = aged(live);
  CHECK(live.level == 0.0);
  CHECK(price(live, other, predicted, 10).line.seconds(10) == Approx(before).epsilon(kRounding));
}

TEST_CASE("what a shape that has just begun is off by is its own, not the machine's") {
  LiveCosts live;
  StepLine const predicted{0.0, 0.1};
  StepShape const known = shape_of(4, 1), fresh = shape_of(2, 2);
  observe_steps(100, live, known, predicted, 10, 1.0);
  observe_steps(30, live, fresh, predicted, 10, 1.3);
  CHECK(price(live, known, predicted, 10).line.seconds(10) == Approx(1.0).epsilon(0.01));
  CHECK(price(live, fresh, predicted, 10).line.seconds(10) == Approx(1.3).epsilon(0.01));
}

TEST_CASE("a pause of the machine is no step time") {
  LiveCosts live;
  StepLine const predicted{0.0, 0.1};
  observe_steps(50, live, shape_of(4, 1), predicted, 10, 1.0);
  observe(live, shape_of(4, 1), predicted, 10, 60.0);
  CHECK(price(live, shape_of(4, 1), predicted, 10).line.seconds(10) == Approx(1.0).epsilon(0.02));
  // A machine that has become slower is followed.
  observe_steps(600, live, shape_of(4, 1), predicted, 10, 3.0);
  CHECK(price(live, shape_of(4, 1), predicted, 10).line.seconds(10) > 2.5);
}

}  // namespace copus
