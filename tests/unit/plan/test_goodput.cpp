#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "copus/plan/goodput.h"

namespace copus {
namespace {

constexpr std::array kObjectives{Objective::plain, Objective::sqrt_lr, Objective::normalized};

// Tokens a second of a step of t0 + t1 B seconds with t1 = 1, in sequences.
double rate(double batch, double x) {
  return batch / (x + batch);
}

}  // namespace

TEST_CASE("the best batches of the three objectives are the published numbers") {
  // Published as whole numbers. x = 64: phi 1024 -> 256 / 1246 / 395; phi 16384 -> 1024 / 16637 /
  // 1480.
  CHECK(std::abs(best_batch(Objective::plain, 64, 1024) - 256) < 1.0);
  CHECK(std::abs(best_batch(Objective::sqrt_lr, 64, 1024) - 1246) < 1.0);
  CHECK(std::abs(best_batch(Objective::normalized, 64, 1024) - 395) < 1.0);
  CHECK(std::abs(best_batch(Objective::plain, 64, 16384) - 1024) < 1.0);
  CHECK(std::abs(best_batch(Objective::sqrt_lr, 64, 16384) - 16637) < 1.0);
  CHECK(std::abs(best_batch(Objective::normalized, 64, 16384) - 1480) < 1.0);
}

TEST_CASE("no batch beats the closed-form optimum, whatever the speed and the noise scale") {
  for (Objective objective : kObjectives) {
    for (double x : {0.5, 8.0, 64.0, 1000.0}) {
      for (double phi : {1.0, 30.0, 1024.0, 50000.0}) {
        double const best = best_batch(objective, x, phi);
        double const at_best = goodput(objective, rate(best, x), best, phi);
        for (double factor = 0.01; factor < 100.0; factor *= 1.07) {
          double const batch = best * factor;
          CAPTURE(x, phi, factor);
          CHECK(goodput(objective, rate(batch, x), batch, phi) <= at_best * (1 + 1e-12));
        }
      }
    }
  }
}

TEST_CASE("progress per token halves at the critical batch and is whole where phi is infinite") {
  CHECK(progress_per_token(Objective::plain, 512, 512) == 0.5);
  CHECK(progress_per_token(Objective::sqrt_lr, 400, 400) == 10.0);
  CHECK(progress_per_token(Objective::normalized, 512, 512) == Approx(std::sqrt(0.5)));
  double const infinite = std::numeric_limits<double>::infinity();
  CHECK(progress_per_token(Objective::plain, 512, infinite) == 1.0);
  CHECK(progress_per_token(Objective::sqrt_lr, 256, infinite) == 16.0);
  CHECK(progress_per_token(Objective::normalized, 512, infinite) == 1.0);
}

TEST_CASE("two configurations are worth the same at their crossing, and change places there") {
  for (Objective objective : kObjectives) {
    Rate const small{1000.0, 64}, large{1300.0, 256};
    std::optional<double> const phi = crossing(objective, small, large);
    REQUIRE(phi);
    auto const worth = [&](const Rate& r, double at) {
      return goodput(objective, r.tokens_per_second, r.batch, at);
    };
    CHECK(worth(small, *phi) == Approx(worth(large, *phi)).epsilon(1e-12));
    CHECK(worth(small, *phi * 0.9) > worth(large, *phi * 0.9));
    CHECK(worth(small, *phi * 1.1) < worth(large, *phi * 1.1));
    CHECK(*crossing(objective, large, small) == Approx(*phi).epsilon(1e-12));
  }
  // The plain one by hand: (1000 x 256 - 1300 x 64) / (1300 - 1000).
  CHECK(*crossing(Objective::plain, {1000.0, 64}, {1300.0, 256}) == Approx(576.0));
}

TEST_CASE("a configuration that is faster at the smaller batch is never crossed") {
  CHECK_FALSE(crossing(Objective::plain, {1300.0, 64}, {1000.0, 256}));
  CHECK_FALSE(crossing(Objective::normalized, {1300.0, 64}, {1000.0, 256}));
  CHECK_FALSE(crossing(Objective::plain, {1000.0, 64}, {1000.0, 256}));  // only at infinity
  CHECK_FALSE(crossing(Objective::plain, {1000.0, 64}, {1000.0, 64}));
}

}  // namespace copus
