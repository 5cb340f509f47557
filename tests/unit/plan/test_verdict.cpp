#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <vector>

#include "copus/plan/verdict.h"

namespace copus {
namespace {

std::mt19937& random_of() {
  static thread_local std::mt19937 random(17);
  return random;
}

// Tokens/s of n steps that scatter by `sigma`; one in ten is a pause of half as long again, and
// neighbours have the correlation `r`.
std::vector<double> rates(std::size_t n, double speed, double sigma, double r) {
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> uniform;
  std::vector<double> out;
  double wander = normal(random_of());
  for (std::size_t i = 0; i < n; ++i) {
    wander = r * wander + std::sqrt(1.0 - r * r) * normal(random_of());
    double const pause = uniform(random_of()) < 0.1 ? 1.5 : 1.0;
    out.push_back(speed * std::exp(sigma * wander) / pause);
  }
  return out;
}

Decision promising(double gain, double error) {
  Decision d;
  d.current = d.current_speed = 1000.0;
  d.predicted = d.predicted_speed = 1000.0 * (1.0 + gain);
  d.error = error;
  return d;
}

// As the run does: looks after 10, 20, 40 and 80 steps, the last of which decides.
Ruling ruled(const Decision& d, const std::vector<double>& before,
             const std::vector<double>& after) {
  for (std::size_t look = 10;; look *= 2) {
    bool const last = look * 2 > after.size();
    Verdict const verdict =
        verify(d, speed_of(before), speed_of(std::span(after).first(look)), last);
    if (verdict.ruling != Ruling::wait) return verdict.ruling;
    REQUIRE_FALSE(last);
  }
}

int rolled_back_of_1000(double truth, double sigma, double r) {
  random_of().seed(17);
  int count = 0;
  for (int i = 0; i < 1000; ++i) {
    std::vector<double> const before = rates(64, 1000.0, sigma, r);
    std::vector<double> const after = rates(80, 1000.0 * truth, sigma, r);
    count += ruled(promising(0.1, 0.02), before, after) == Ruling::roll_back ? 1 : 0;
  }
  return count;
}

}  // namespace

TEST_CASE("the interval of a speed holds the true median, of few steps and of many") {
  for (double r : {0.0, 0.5}) {
    for (std::size_t n : {10, 20, 64}) {
      random_of().seed(3);
      int outside = 0;
      std::size_t bounded = 0;
      for (int i = 0; i < 2000; ++i) {
        // Without pauses the median is the speed itself.
        std::normal_distribution<double> normal;
        std::vector<double> sample;
        double wander = normal(random_of());
        for (std::size_t k = 0; k < n; ++k) {
          wander = r * wander + std::sqrt(1.0 - r * r) * normal(random_of());
          sample.push_back(100.0 * std::exp(0.1 * wander));
        }
        Speed const speed = speed_of(sample);
        outside += speed.low > 100.0 || speed.high < 100.0 ? 1 : 0;
        bounded += std::isfinite(speed.high) ? 1 : 0;
      }
      CAPTURE(r, n, outside, bounded);
      CHECK(outside <= 40);  // 2 %: 0.6 % of independent steps
      if (n > 10) CHECK(bounded > 1000);
    }
  }
}

TEST_CASE("too few steps have no interval") {
  CHECK(speed_of({}).steps == 0);
  Speed const few = speed_of(std::vector<double>{90, 100, 110});
  CHECK(few.median == 100.0);
  CHECK(std::isinf(few.high));
  CHECK(std::isinf(few.error()));
}

TEST_CASE("noise alone rolls nothing back: at most one percent of a thousand traces") {
  // Exactly as good as before, which is short of the promise by far more than its error.
  for (double r : {0.0, 0.5}) {
    for (double sigma : {0.02, 0.1, 0.3}) {
      CAPTURE(r, sigma);
      CHECK(rolled_back_of_1000(1.0, sigma, r) <= 10);
    }
  }
}

TEST_CASE("a change that made things a fifth slower is rolled back on a noisy machine too") {
  CHECK(rolled_back_of_1000(0.8, 0.02, 0.0) >= 990);
  CHECK(rolled_back_of_1000(0.8, 0.1, 0.0) >= 900);
}

TEST_CASE("a verdict names speeds, prediction and what the steps leave open") {
  Decision const d = promising(0.2, 0.1);
  std::vector<double> const was(64, 1000.0);
  auto const ruling = [&](double speed, bool last = false) {
    return verify(d, speed_of(was), speed_of(std::vector<double>(10, speed)), last);
  };
  // Equal steps all lie on one side of the median and count as few.
  CHECK(ruling(1250.0).ruling == Ruling::wait);
  Verdict const hidden = ruling(900.0, true);
  CHECK(hidden.ruling == Ruling::keep);
  CHECK_THAT(hidden.reason, Catch::Contains("noise hides"));
  auto const certain = [&](double speed) {
    std::vector<double> steps;
    for (int i = 0; i < 40; ++i) steps.push_back(speed * (i % 2 == 0 ? 0.999 : 1.001));
    std::vector<double> before;
    for (int i = 0; i < 40; ++i) before.push_back(1000.0 * (i % 2 == 0 ? 0.999 : 1.001));
    return verify(d, speed_of(before), speed_of(steps), false);
  };
  CHECK(certain(1250.0).ruling == Ruling::keep);
  CHECK_THAT(certain(1100.0).reason, Catch::StartsWith("kept, as predicted"));  // within its error
  CHECK_THAT(certain(1020.0).reason, Catch::StartsWith("kept, better than before"));
  Verdict const back = certain(900.0);
  CHECK(back.ruling == Ruling::roll_back);
  CHECK(back.predicted_speed == Approx(1200.0));
  CHECK_THAT(back.reason, Catch::StartsWith("rolled back") && Catch::Contains("-25.0 %"));
}

TEST_CASE("without steps before, the decision's own estimate of the present stands for them") {
  Decision const d = promising(0.2, 0.1);
  std::vector<double> steps;
  for (int i = 0; i < 40; ++i) steps.push_back(i % 2 == 0 ? 799.0 : 801.0);
  CHECK(verify(d, {}, speed_of(steps), false).ruling == Ruling::roll_back);
}

}  // namespace copus
