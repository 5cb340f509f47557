// Which elements dropout keeps, as factors 0 or 1/(1-p): the CPU's keep_mask.h, one group of four
// neighbours at a time.
#pragma once
#include "backend/cuda/launch.cuh"
#include "copus/backend/backend.h"

namespace copus::cuda {

struct KeepMask {
  RngStream stream;
  std::uint32_t threshold;
  float kept;

  explicit KeepMask(const Dropout& options)
      : stream(options.stream), threshold(options.threshold()), kept(1.0f / (1.0f - options.p)) {}

  // Of elements 4 group .. 4 group + 3.
  __device__ Pack<4> factors(std::uint64_t group) const {
    PhiloxWords const words = philox(stream.key, group, stream.high);
    Pack<4> f;
#pragma unroll
    for (int w = 0; w < 4; ++w) f.at[w] = words.word[w] >= threshold ? kept : 0.0f;
    return f;
  }
};

}  // namespace copus::cuda
