#include "copus/core/rng.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>
#include <set>
#include <vector>

#include "copus/core/error.h"

namespace copus {
namespace {

std::vector<std::uint32_t> words(const PhiloxWords& w) {
  return {w.word[0], w.word[1], w.word[2], w.word[3]};
}

std::vector<std::uint64_t> order_of(std::uint64_t n, std::uint64_t seed, std::uint64_t epoch) {
  Permutation const permutation(n, seed, epoch);
  std::vector<std::uint64_t> order(n);
  for (std::uint64_t i = 0; i < n; ++i) order[i] = permutation(i);
  return order;
}

bool is_bijection(std::vector<std::uint64_t> order) {
  std::sort(order.begin(), order.end());
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (order[i] != i) return false;
  }
  return true;
}

TEST_CASE("philox gives the published known answers of Philox4x32-10") {
  CHECK(words(philox(0, 0, 0)) ==
        std::vector<std::uint32_t>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(words(philox(~0ull, ~0ull, ~0ull)) ==
        std::vector<std::uint32_t>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  // Counter and key are digits of pi.
  CHECK(words(philox(0x299f31d0a4093822ull, 0x85a308d3243f6a88ull, 0x0370734413198a2eull)) ==
        std::vector<std::uint32_t>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("every field of a key names another stream") {
  RngKey const base{.seed = 1, .purpose = RngPurpose::test, .step = 2, .place = 3};
  std::vector<RngKey> keys(5, base);
  keys[1].seed = 2;
  keys[2].purpose = RngPurpose::init;
  keys[3].step = 3;
  keys[4].place = 2;
  std::set<std::uint32_t> first;
  for (const RngKey& key : keys) first.insert(random_bits(stream_of(key), 0));
  CHECK(first.size() == keys.size());
}

TEST_CASE("random bits of a stream have a golden value computed apart from this code") {
  RngStream const s = stream_of(
      {.seed = 0xdeadbeefcafef00dull, .purpose = RngPurpose::test, .step = 9, .place = 3});
  CHECK(random_bits(s, 21) == 0xd533ff56u);
}

TEST_CASE("uniform numbers lie in [0, 1) with the moments of a uniform distribution") {
  RngStream const s = stream_of({.seed = 5});
  constexpr int kCount = 200000;
  double sum = 0, squares = 0;
  std::set<double> values;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    double const u = uniform(s, i);
    REQUIRE(u >= 0.0);
    REQUIRE(u < 1.0);
    sum += u;
    squares += u * u;
    values.insert(u);
  }
  // Five standard errors: var(u) = 1/12, var(u^2) = 4/45.
  CHECK(std::abs(sum / kCount - 0.5) < 5.0 * std::sqrt(1.0 / 12.0 / kCount));
  CHECK(std::abs(squares / kCount - 1.0 / 3.0) < 5.0 * std::sqrt(4.0 / 45.0 / kCount));
  // 53 bits: a repeated value among 2^17.6 has the probability 2^-18.8; with 32 bits some 4 repeat.
  CHECK(values.size() == kCount);
}

TEST_CASE("normal numbers have the moments of a standard normal distribution") {
  RngStream const s = stream_of({.seed = 6});
  constexpr int kCount = 200000;
  double m1 = 0, m2 = 0, m3 = 0, m4 = 0, neighbours = 0, last = 0;
  int beyond_two = 0;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    double const z = normal(s, i);
    m1 += z;
    m2 += z * z;
    m3 += z * z * z;
    m4 += z * z * z * z;
    neighbours += z * last;
    beyond_two += std::abs(z) > 2.0;
    last = z;
  }
  // Five standard errors each; the variances of z, z^2, z^3, z^4 and z z' are 1, 2, 15, 96 and 1.
  auto const bound = [](double variance) { return 5.0 * std::sqrt(variance / kCount); };
  CHECK(std::abs(m1 / kCount) < bound(1));
  CHECK(std::abs(m2 / kCount - 1.0) < bound(2));
  CHECK(std::abs(m3 / kCount) < bound(15));
  CHECK(std::abs(m4 / kCount - 3.0) < bound(96));
  CHECK(std::abs(neighbours / kCount) < bound(1));
  double const tail = std::erfc(2.0 / std::sqrt(2.0));
  CHECK(std::abs(beyond_two / double{kCount} - tail) < bound(tail * (1.0 - tail)));
}

TEST_CASE("a normal number depends on its own index alone") {
  RngStream const s = stream_of({.seed = 7});
  float const late = normal(s, 1ull << 40);
  for (std::uint64_t i = 0; i < 100; ++i) normal(s, i);
  CHECK(normal(s, 1ull << 40) == late);
  CHECK(std::isfinite(late));
}

TEST_CASE("L10: the permutation has golden values computed apart from this code") {
  CHECK(order_of(10, 1, 0) == std::vector<std::uint64_t>{1, 7, 6, 3, 8, 9, 2, 5, 4, 0});
  CHECK(order_of(10, 1, 1) == std::vector<std::uint64_t>{5, 3, 7, 9, 6, 8, 0, 1, 2, 4});
  std::vector<std::uint64_t> first = order_of(1000, 42, 3);
  first.resize(8);
  CHECK(first == std::vector<std::uint64_t>{125, 787, 154, 104, 185, 107, 112, 161});
  Permutation const large(1000000000039ull, 7, (1ull << 32) + 5);
  CHECK(large(0) == 18313447154ull);
  CHECK(large(1) == 742458357148ull);
  CHECK(large(1000000000000ull) == 523371299344ull);
}

TEST_CASE("the permutation is a bijection for every n from 1 to 1000 and for larger ones") {
  for (std::uint64_t n = 1; n <= 1000; ++n) {
    INFO("n = " << n);
    REQUIRE(is_bijection(order_of(n, n, 0)));
  }
  for (std::uint64_t const n : {4095ull, 4096ull, 4097ull, 65537ull, 99991ull}) {
    INFO("n = " << n);
    CHECK(is_bijection(order_of(n, 3, 2)));
  }
}

TEST_CASE("the permutation of the largest domain stays inside it") {
  Permutation const all(~0ull, 1, 0);
  std::set<std::uint64_t> seen;
  for (std::uint64_t i = 0; i < 1000; ++i) seen.insert(all(i));
  CHECK(seen.size() == 1000);
  CHECK(*seen.rbegin() > 1ull << 60);  // all 1000 below it: probability 16^-1000
}

TEST_CASE("epochs and seeds draw different permutations") {
  std::set<std::vector<std::uint64_t>> orders;
  for (std::uint64_t epoch = 0; epoch < 8; ++epoch) {
    for (std::uint64_t seed = 0; seed < 8; ++seed) orders.insert(order_of(64, seed, epoch));
    orders.insert(order_of(64, 0, epoch + (1ull << 32)));
  }
  CHECK(orders.size() == 72);
}

TEST_CASE("a permutation leaves about one element in place and orders pairs evenly") {
  // Over 2000 epochs of n = 50: fixed points are Poisson(1) each epoch, the pair (0, 1) is a coin.
  constexpr int kEpochs = 2000;
  int fixed = 0, ascending = 0;
  for (std::uint64_t epoch = 0; epoch < kEpochs; ++epoch) {
    std::vector<std::uint64_t> const order = order_of(50, 9, epoch);
    for (std::uint64_t i = 0; i < order.size(); ++i) fixed += order[i] == i;
    ascending += order[0] < order[1];
  }
  CHECK(std::abs(fixed - kEpochs) < 5.0 * std::sqrt(kEpochs));
  CHECK(std::abs(ascending - kEpochs / 2) < 5.0 * std::sqrt(kEpochs / 4.0));
}

TEST_CASE("an empty permutation and an index outside are refused") {
  CHECK_THROWS_AS(Permutation(0, 1, 1), InternalError);
  CHECK_THROWS_AS(Permutation(3, 1, 1)(3), InternalError);
}

}  // namespace
}  // namespace copus
