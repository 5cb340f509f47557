#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/keep_mask.cuh"

namespace copus {
namespace cuda {
namespace {

constexpr int kThreads = 256;

// A thread takes the four elements that share a Philox call; kFours: they are one access.
template <class T, bool kFours>
__global__ void __launch_bounds__(kThreads)
    dropout_kernel(RowsOf<T> x, KeepMask mask, std::uint64_t first) {
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
        if (i < 0 || i >= n) continue;
        T& at = x.data[i / x.width * x.stride + i % x.width];
        put(at, get(at) * factor.at[w]);
      }
    }
  }
}

template <class T>
void drop(cudaStream_t stream, const RowsOf<T>& x, const Dropout& options) {
  std::int64_t const n = x.rows * x.width;
  if (n == 0) return;
  KeepMask const mask(options);
  unsigned const blocks = grid_of(pieces(n, 4 * kThreads) + 1, 1 << 20);
  bool const fours = x.rows == 1 && in_fours(x) && options.first % 4 == 0;
  auto* const kernel = fours ? dropout_kernel<T, true> : dropout_kernel<T, false>;
  kernel<<<blocks, kThreads, 0, stream>>>(x, mask, options.first);
  CUDA_CHECK(cudaGetLastError());
}

}  // namespace
}  // namespace cuda

void CudaBackend::dropout(TensorView x, const Dropout& options) {
  COPUS_CHECK(options.p >= 0.0f && options.p < 1.0f, "a dropout probability below 1");
  if (options.p == 0.0f) return;
  with_compute_type(
      x.dtype, [&](auto type) { cuda::drop(stream(), flat_rows_of<decltype(type)>(x), options); });
}

}  // namespace copus
