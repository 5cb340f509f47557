#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/keep_mask.cuh"

namespace copus {
namespace cuda {
namespace {

constexpr int kThreads = 256;

// A thread takes the four elements that share a Philox call; kFours: they are one 16-byte access.
template <bool kFours>
__global__ void __launch_bounds__(kThreads)
    dropout_kernel(Rows x, KeepMask mask, std::uint64_t first) {
  std::int64_t const n = x.rows * x.width;
  std::int64_t const skip = static_cast<std::int64_t>(first & 3);
  std::int64_t const groups = (skip + n + 3) / 4, step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t g = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; g < groups; g += step) {
    Pack<4> const factor = mask.factors((first >> 2) + static_cast<std::uint64_t>(g));
    if constexpr (kFours) {
      Pack<4> value = load<4>(x.data + 4 * g);
      // A product, not a select: what is dropped out of a NaN stays a NaN.
#pragma unroll
      for (int w = 0; w < 4; ++w) value.at[w] *= factor.at[w];
      store<4>(x.data + 4 * g, value);
    } else {
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        std::int64_t const i = 4 * g + w - skip;
        if (i >= 0 && i < n) x.data[i / x.width * x.stride + i % x.width] *= factor.at[w];
      }
    }
  }
}

}  // namespace
}  // namespace cuda

void CudaBackend::dropout(TensorView x, const Dropout& options) {
  COPUS_CHECK(options.p >= 0.0f && options.p < 1.0f, "a dropout probability below 1");
  Rows const rows = flat_rows_of(x);
  std::int64_t const n = rows.rows * rows.width;
  if (options.p == 0.0f || n == 0) return;
  cuda::KeepMask const mask(options);
  unsigned const blocks = cuda::grid_of(cuda::pieces(n, 4 * cuda::kThreads) + 1, 1 << 20);
  if (rows.rows == 1 && cuda::in_fours(rows) && options.first % 4 == 0) {
    cuda::dropout_kernel<true><<<blocks, cuda::kThreads, 0, stream()>>>(rows, mask, options.first);
  } else {
    cuda::dropout_kernel<false><<<blocks, cuda::kThreads, 0, stream()>>>(rows, mask, options.first);
  }
  CUDA_CHECK(cudaGetLastError());
}

}  // namespace copus
