// What the kernel files share: packs of 1, 2 or 4 elements as floats, sums over a warp or a block
// in a fixed order, and sizes of grids.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "backend/compute_type.h"
#include "backend/cuda/check.h"
#include "backend/rows.h"

namespace copus::cuda {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

// Blocks of 256 threads that a multiprocessor is to hold at least, of kernels that wait on memory.
// Left to itself ptxas aims at more, and spills registers for it.
inline constexpr int kBlocksAtOnce = 3;

template <int kWidth>
struct Pack {
  float at[kWidth];
};

// One access of 4 kWidth bytes; `p` is aligned to them.
template <int kWidth>
__device__ inline Pack<kWidth> load(const float* p) {
  Pack<kWidth> x;
  if constexpr (kWidth == 4) {
    float4 const v = *reinterpret_cast<const float4*>(p);
    x.at[0] = v.x, x.at[1] = v.y, x.at[2] = v.z, x.at[3] = v.w;
  } else if constexpr (kWidth == 2) {
    float2 const v = *reinterpret_cast<const float2*>(p);
    x.at[0] = v.x, x.at[1] = v.y;
  } else {
    x.at[0] = *p;
  }
  return x;
}

template <int kWidth>
__device__ inline void store(float* p, const Pack<kWidth>& x) {
  if constexpr (kWidth == 4) {
    *reinterpret_cast<float4*>(p) = make_float4(x.at[0], x.at[1], x.at[2], x.at[3]);
  } else if constexpr (kWidth == 2) {
    *reinterpret_cast<float2*>(p) = make_float2(x.at[0], x.at[1]);
  } else {
    *p = x.at[0];
  }
}

// The same of bf16, in one access of 2 kWidth bytes.
template <int kWidth>
__device__ inline Pack<kWidth> load(const Bf16* p) {
  Pack<kWidth> x;
  auto const low = [](std::uint32_t two) {
    return math::from_bf16(static_cast<std::uint16_t>(two & 0xffffu));
  };
  auto const high = [](std::uint32_t two) {
    return math::from_bf16(static_cast<std::uint16_t>(two >> 16));
  };
  if constexpr (kWidth == 4) {
    uint2 const v = *reinterpret_cast<const uint2*>(p);
    x.at[0] = low(v.x), x.at[1] = high(v.x), x.at[2] = low(v.y), x.at[3] = high(v.y);
  } else if constexpr (kWidth == 2) {
    std::uint32_t const v = *reinterpret_cast<const std::uint32_t*>(p);
    x.at[0] = low(v), x.at[1] = high(v);
  } else {
    x.at[0] = get(*p);
  }
  return x;
}

template <int kWidth>
__device__ inline void store(Bf16* p, const Pack<kWidth>& x) {
  auto const two = [](float low, float high) {
    return static_cast<std::uint32_t>(math::to_bf16(low)) |
           static_cast<std::uint32_t>(math::to_bf16(high)) << 16;
  };
  if constexpr (kWidth == 4) {
    *reinterpret_cast<uint2*>(p) = make_uint2(two(x.at[0], x.at[1]), two(x.at[2], x.at[3]));
  } else if constexpr (kWidth == 2) {
    *reinterpret_cast<std::uint32_t*>(p) = two(x.at[0], x.at[1]);
  } else {
    put(*p, x.at[0]);
  }
}

// The same bits in every lane: each step adds the same two numbers on both sides.
template <class T>
__device__ inline T warp_sum(T x) {
  for (int step = kWarp / 2; step > 0; step /= 2) x += __shfl_xor_sync(kAllLanes, x, step);
  return x;
}

// Sum over the block's threads, known to all of them. `partials` holds a T a warp; every thread of
// the block takes part, in whole warps.
template <class T>
__device__ inline T block_sum(T x, T* partials) {
  int const lane = static_cast<int>(threadIdx.x) % kWarp;
  int const warp = static_cast<int>(threadIdx.x) / kWarp;
  int const warps = static_cast<int>(blockDim.x) / kWarp;
  x = warp_sum(x);
  __syncthreads();  // the last sum has been read
  if (lane == 0) partials[warp] = x;
  __syncthreads();
  return warp_sum(lane < warps ? partials[lane] : T{0});
}

inline bool aligned16(const void* p) {
  return reinterpret_cast<std::uintptr_t>(p) % 16 == 0;
}
// Whether every row is whole groups of four elements at addresses that take them in one access.
template <class T>
bool in_fours(const RowsOf<T>& x) {
  return aligned16(x.data) && x.width % 4 == 0 && (x.rows <= 1 || x.stride % 4 == 0);
}

inline std::int64_t pieces(std::int64_t n, std::int64_t piece) {
  return (n + piece - 1) / piece;
}
// Blocks for n pieces of work, at least one and at most `most`: kernels stride over what is left.
inline unsigned grid_of(std::int64_t n, std::int64_t most = 65535) {
  return static_cast<unsigned>(n < 1 ? 1 : (n < most ? n : most));
}

// Shared memory beyond 48 KiB, a kernel's static one included, has to be asked for. Less is never
// asked for: ranks that share a process would lower the limit under each other's launches.
template <class Kernel>
void allow_shared(Kernel kernel, std::int64_t bytes) {
  constexpr std::int64_t kSurelyGiven = 40 << 10;
  if (bytes <= kSurelyGiven) return;
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(bytes)));
}

}  // namespace copus::cuda
