// The salts that keep the fingerprints of a model's tensors apart.
#pragma once
#include <cstdint>

#include "copus/core/math.h"

namespace copus::detail {

// Of parameter `param` in buffer `part` (0: the weights, 1: m, 2: v).
inline std::uint64_t tensor_salt(int param, int part) {
  return math::mix(static_cast<std::uint64_t>(param) * 3 + static_cast<std::uint64_t>(part) + 1);
}

}  // namespace copus::detail
