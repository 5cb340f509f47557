#include <catch2/catch.hpp>
#include <cmath>
#include <random>

#include "copus/plan/noise_trend.h"

namespace copus {
namespace {

NoiseTrend trend_of(double growth, double sigma, int points, std::mt19937& random) {
  std::normal_distribution<double> normal;
  NoiseTrend trend;
  for (int i = 0; i < points; ++i) {
    double const tokens = 1000.0 * i;
    note_noise(trend, tokens, 500.0 * std::exp(growth * tokens + sigma * normal(random)), 1000.0);
  }
  return trend;
}

}  // namespace

TEST_CASE("a noise scale that grows by e every 10,000 tokens has that growth") {
  std::mt19937 random(1);
  CHECK(noise_growth(trend_of(1e-4, 0.0, 8, random), 0.9) == Approx(1e-4));
  CHECK(noise_growth(trend_of(1e-4, 0.1, 16, random), 0.9) == Approx(1e-4).epsilon(0.3));
  CHECK(noise_growth(trend_of(1e-4, 0.0, 4, random), 0.9) == 0.0);  // too few to tell
}

TEST_CASE("a noise scale that only wanders has a growth no more often than its confidence says") {
  std::mt19937 random(2);
  int grows = 0;
  for (int i = 0; i < 1000; ++i) {
    grows += noise_growth(trend_of(0.0, 0.2, 5 + i % 12, random), 0.9) != 0.0 ? 1 : 0;
  }
  CHECK(grows < 130);  // of 100 expected, within three standard deviations
}

TEST_CASE("readings closer than the averages' half-life count once, and only the latest stay") {
  NoiseTrend trend;
  for (int i = 0; i < 400; ++i) note_noise(trend, 100.0 * i, 500.0, 1000.0);
  CHECK(trend.points.size() == 16);
  CHECK(trend.points.back().tokens == 39000.0);
  CHECK(trend.points.front().tokens == 24000.0);
}

}  // namespace copus
