// One 64-bit number per element of a logical tensor, from which layout-independent fingerprints are
// added up.
#pragma once
#include <bit>
#include <cstdint>

namespace copus::detail {

// A 64-bit finaliser (Stafford's variant 13 of MurmurHash3's).
inline std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

// Of parameter `param` in buffer `part` (0: the weights, 1: m, 2: v).
inline std::uint64_t tensor_salt(int param, int part) {
  return mix(static_cast<std::uint64_t>(param) * 3 + static_cast<std::uint64_t>(part) + 1);
}

// Modulo 2^64, the sum over `count` neighbours of one row, of which the first has the global number
// `first`.
inline std::uint64_t row_hash(const float* x, std::int64_t count, std::uint64_t first,
                              std::uint64_t salt) {
  std::uint64_t sum = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint64_t const bits = std::bit_cast<std::uint32_t>(x[i]);
    sum += mix((first + static_cast<std::uint64_t>(i)) * 0x9E3779B97F4A7C15ull ^ salt ^ bits << 32);
  }
  return sum;
}

}  // namespace copus::detail
