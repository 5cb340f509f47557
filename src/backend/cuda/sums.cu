#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/launch.cuh"

namespace copus {
namespace cuda {
namespace {

constexpr int kThreads = 256;
// A fixed number, so that the order of a sum depends on its length alone, not on the GPU.
constexpr std::int64_t kBlocks = 1024;

template <bool kSquares>
__device__ void add_term(double& total, float x) {
  auto const value = static_cast<double>(x);
  total = kSquares ? fma(value, value, total) : total + value;
}

template <bool kSquares, int kWidth>
__global__ void __launch_bounds__(kThreads, kBlocksAtOnce) sum_kernel(double* partials, Rows x) {
  __shared__ double warps[kThreads / kWarp];
  double total = 0.0;
  std::int64_t const first = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * kWidth;
  std::int64_t const step = std::int64_t{gridDim.x} * kThreads * kWidth;
  for (std::int64_t row = 0; row < x.rows; ++row) {
    for (std::int64_t i = first; i < x.width; i += step) {
      Pack<kWidth> const from = load<kWidth>(x.data + row * x.stride + i);
#pragma unroll
      for (int w = 0; w < kWidth; ++w) add_term<kSquares>(total, from.at[w]);
    }
  }
  total = block_sum(total, warps);
  if (threadIdx.x == 0) partials[blockIdx.x] = total;
}

// partials[0] = their sum; one block.
__global__ void __launch_bounds__(kThreads) total_kernel(double* partials, int n) {
  __shared__ double warps[kThreads / kWarp];
  double total = 0.0;
  for (int i = static_cast<int>(threadIdx.x); i < n; i += kThreads) total += partials[i];
  total = block_sum(total, warps);
  if (threadIdx.x == 0) partials[0] = total;
}

template <bool kSquares>
void sum_to(cudaStream_t stream, double* partials, const Rows& x) {
  bool const fours = in_fours(x);
  unsigned const blocks = grid_of(pieces(x.width, kThreads * (fours ? 4 : 1)), kBlocks);
  if (fours) {
    sum_kernel<kSquares, 4><<<blocks, kThreads, 0, stream>>>(partials, x);
  } else {
    sum_kernel<kSquares, 1><<<blocks, kThreads, 0, stream>>>(partials, x);
  }
  CUDA_CHECK(cudaGetLastError());
  total_kernel<<<1, kThreads, 0, stream>>>(partials, static_cast<int>(blocks));
  CUDA_CHECK(cudaGetLastError());
}

constexpr std::int64_t kPartialBytes = kBlocks * static_cast<std::int64_t>(sizeof(double));

}  // namespace
}  // namespace cuda

double CudaBackend::sum(const TensorView& x) {
  Rows const rows = flat_rows_of(x);
  if (rows.rows == 0 || rows.width == 0) return 0.0;
  auto* const partials = reinterpret_cast<double*>(scratch(cuda::kPartialBytes));
  cuda::sum_to<false>(stream(), partials, rows);
  return fetch(partials);
}

double CudaBackend::square_sum(const TensorView& x) {
  Rows const rows = flat_rows_of(x);
  if (rows.rows == 0 || rows.width == 0) return 0.0;
  auto* const partials = reinterpret_cast<double*>(scratch(cuda::kPartialBytes));
  cuda::sum_to<true>(stream(), partials, rows);
  return fetch(partials);
}

}  // namespace copus
