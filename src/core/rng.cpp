#include "copus/core/rng.h"

#include <cmath>
#include <numbers>

#include "copus/core/error.h"

namespace copus {
namespace {

// 53 random bits as a double in [0, 1).
double unit_interval(std::uint32_t high, std::uint32_t low) {
  std::uint64_t const bits = (static_cast<std::uint64_t>(high) << 32 | low) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

// Four rounds make a Feistel network a strong pseudo-random permutation of a large domain (Luby and
// Rackoff 1988); small ones need more, and a data set of ten windows is a small domain.
constexpr std::uint64_t kRounds = 8;

std::uint64_t low_bits(int count) {
  return (std::uint64_t{1} << count) - 1;
}

}  // namespace

double uniform(const RngStream& s, std::uint64_t index) {
  PhiloxWords const w = philox(s.key, index >> 1, s.high);
  std::size_t const pair = 2 * (index & 1);
  return unit_interval(w.word[pair], w.word[pair + 1]);
}

float normal(const RngStream& s, std::uint64_t index) {
  PhiloxWords const w = philox(s.key, index, s.high);
  double const u = 1.0 - unit_interval(w.word[0], w.word[1]);  // (0, 1]: its logarithm is finite
  double const turn = unit_interval(w.word[2], w.word[3]);
  return static_cast<float>(std::sqrt(-2.0 * std::log(u)) *
                            std::cos(2.0 * std::numbers::pi * turn));
}

Permutation::Permutation(std::uint64_t n, std::uint64_t seed, std::uint64_t epoch)
    : n_(n),
      stream_(stream_of({seed, RngPurpose::shuffle, static_cast<std::uint32_t>(epoch),
                         static_cast<std::uint32_t>(epoch >> 32)})) {
  COPUS_CHECK(n > 0, "a permutation has at least one element");
  COPUS_CHECK(epoch >> 56 == 0, "the epoch fits its 56 bits of the counter");
  while (half_bits_ < 32 && (std::uint64_t{1} << (2 * half_bits_)) < n) ++half_bits_;
}

std::uint64_t Permutation::operator()(std::uint64_t index) const {
  COPUS_CHECK(index < n_, "a permutation is asked for one of its elements");
  std::uint64_t const mask = low_bits(half_bits_);
  std::uint64_t x = index;
  do {
    std::uint64_t left = x >> half_bits_, right = x & mask;
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      std::uint64_t const mixed =
          left ^ (philox(stream_.key, round << 32 | right, stream_.high).word[0] & mask);
      left = right;
      right = mixed;
    }
    x = left << half_bits_ | right;
  } while (x >= n_);
  return x;
}

}  // namespace copus
