// Random numbers as pure functions of (seed, stream, index): any layout then draws the same ones.
#pragma once
#include <array>
#include <cstdint>

#include "copus/core/hd.h"

namespace copus {

// What a stream is for. Values are stored in no file, but changing one changes every run: append
// only.
enum class RngPurpose : std::uint32_t {
  init = 1,
  shuffle = 2,
  mixture = 3,
  dropout = 4,
  sample = 5,
  test = 6
};

// Names one stream: the same (seed, purpose, step, place) gives the same numbers on every rank.
struct RngKey {
  std::uint64_t seed = 0;
  RngPurpose purpose = RngPurpose::test;
  std::uint32_t step = 0;   // optimizer step, or 0
  std::uint32_t place = 0;  // parameter, layer or data set
};

// Philox 4x32-10 (Salmon et al., SC 2011): four 32-bit words from a 128-bit counter and a 64-bit
// key.
COPUS_HD void philox_round(std::uint32_t (&c)[4], std::uint32_t k0, std::uint32_t k1) {
  std::uint64_t const a = 0xD2511F53ull * c[0], b = 0xCD9E8D57ull * c[2];
  std::uint32_t const c0 = static_cast<std::uint32_t>(b >> 32) ^ c[1] ^ k0;
  std::uint32_t const c2 = static_cast<std::uint32_t>(a >> 32) ^ c[3] ^ k1;
  c[0] = c0;
  c[1] = static_cast<std::uint32_t>(b);
  c[2] = c2;
  c[3] = static_cast<std::uint32_t>(a);
}
struct PhiloxWords {
  std::uint32_t word[4];
};
COPUS_HD PhiloxWords philox(std::uint64_t key, std::uint64_t counter_low,
                            std::uint64_t counter_high) {
  std::uint32_t c[4] = {
      static_cast<std::uint32_t>(counter_low), static_cast<std::uint32_t>(counter_low >> 32),
      static_cast<std::uint32_t>(counter_high), static_cast<std::uint32_t>(counter_high >> 32)};
  std::uint32_t k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    philox_round(c, k0, k1);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c[0], c[1], c[2], c[3]}};
}

// The stream of a key: its Philox key, and the upper half of its counter. `index` is the lower
// half.
struct RngStream {
  std::uint64_t key = 0;
  std::uint64_t high = 0;
};
COPUS_HD RngStream stream_of(const RngKey& k) {
  // The seed is the Philox key; purpose, place and step share the counter's upper half (8 + 24 + 32
  // bits).
  return {k.seed, (static_cast<std::uint64_t>(k.purpose) << 56) ^
                      (static_cast<std::uint64_t>(k.place) << 32) ^ k.step};
}

// 32 random bits for element `index` of the stream (four neighbours share one Philox call).
COPUS_HD std::uint32_t random_bits(const RngStream& s, std::uint64_t index) {
  return philox(s.key, index >> 2, s.high).word[index & 3];
}

// Uniform in [0, 1) for element `index`, with 53 bits.
double uniform(const RngStream& s, std::uint64_t index);
// Standard normal for element `index` (Box-Muller in double, rounded once): bit-equal on every
// machine we build on.
float normal(const RngStream& s, std::uint64_t index);

// A bijection of [0, n) drawn by `seed` and `epoch`: a Feistel network over the next power of four,
// walked until it lands inside. O(1) memory and expected O(1) time, the same on every standard
// library.
class Permutation {
 public:
  Permutation(std::uint64_t n, std::uint64_t seed, std::uint64_t epoch);
  std::uint64_t operator()(std::uint64_t index) const;  // index < n
  std::uint64_t size() const { return n_; }

 private:
  std::uint64_t n_ = 0;
  int half_bits_ = 1;
  RngStream stream_;
};

}  // namespace copus
