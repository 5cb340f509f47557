#include "copus/train/generator.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

using namespace copus;

namespace {

// How many of `steps` evenly spread points of [0, 1) fall on each id.
std::vector<int> shares(const std::vector<float>& logits, const SampleOptions& options, int steps) {
  std::vector<int> count(logits.size(), 0);
  for (int k = 0; k < steps; ++k) {
    ++count[static_cast<std::size_t>(pick_token(logits, options, (k + 0.5) / steps))];
  }
  return count;
}

// Within one point of the exact share, which is what evenly spread points allow.
void check_shares(const std::vector<int>& count, const std::vector<double>& weights) {
  double sum = 0.0, steps = 0.0;
  for (double const w : weights) sum += w;
  for (int const c : count) steps += c;
  for (std::size_t i = 0; i < count.size(); ++i) {
    INFO("id " << i);
    CHECK(std::abs(count[i] - steps * weights[i] / sum) <= 1.0);
  }
}

}  // namespace

TEST_CASE("tokens are drawn by softmax(logits / temperature), among the top k") {
  std::vector<float> logits;
  for (double const p : {1.0, 4.0, 2.0, 3.0}) logits.push_back(static_cast<float>(std::log(p)));
  check_shares(shares(logits, {1.0, 0}, 10000), {1, 4, 2, 3});
  check_shares(shares(logits, {0.5, 0}, 10000), {1, 16, 4, 9});
  check_shares(shares(logits, {2.0, 0}, 10000), {1, 2, std::sqrt(2.0), std::sqrt(3.0)});
  check_shares(shares(logits, {1.0, 2}, 10000), {0, 4, 0, 3});
  check_shares(shares(logits, {0.5, 3}, 10000), {0, 16, 4, 9});
  check_shares(shares(logits, {1.0, 1}, 10000), {0, 1, 0, 0});
  check_shares(shares(logits, {1.0, 99}, 10000), {1, 4, 2, 3});
  check_shares(shares(logits, {0.0, 0}, 100), {0, 1, 0, 0});
}

TEST_CASE("of equal logits the smaller id is the likelier, and the ends of [0, 1) fall on an id") {
  std::vector<float> const logits = {0.0f, 5.0f, 5.0f, 5.0f, -1e30f};
  CHECK(pick_token(logits, {0.0, 0}, 0.7) == 1);
  check_shares(shares(logits, {1.0, 2}, 1000), {0, 1, 1, 0, 0});
  for (double const temperature : {1e-300, 1.0, 1e300}) {
    std::int32_t const low = pick_token(logits, {temperature, 0}, 0.0),
                       high = pick_token(logits, {temperature, 0}, 1.0 - 0x1p-53);
    CHECK((low >= 0 && low <= high && high < 5));
  }
}
