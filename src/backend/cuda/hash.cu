#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/launch.cuh"
#include "copus/core/math.h"

namespace copus {
namespace cuda {
namespace {

constexpr int kThreads = 256;

// Adds to *sum. Integers modulo 2^64: the order of the additions does not matter.
__global__ void __launch_bounds__(kThreads)
    hash_kernel(unsigned long long* sum, Rows x, HashPlace place) {
  __shared__ unsigned long long warps[kThreads / kWarp];
  unsigned long long total = 0;
  std::int64_t const step = std::int64_t{gridDim.x} * kThreads;
  std::int64_t const n = x.rows * x.width;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n; i += step) {
    std::int64_t const row = i / x.width, column = i % x.width;
    std::uint64_t const number = place.first + static_cast<std::uint64_t>(row) * place.pitch +
                                 static_cast<std::uint64_t>(column);
    total +=
        math::element_hash(__float_as_uint(x.data[row * x.stride + column]), number, place.salt);
  }
  total = block_sum(total, warps);
  if (threadIdx.x == 0) atomicAdd(sum, total);
}

}  // namespace
}  // namespace cuda

std::uint64_t CudaBackend::hash(const TensorView& x, const HashPlace& place) {
  Rows const rows = rows_of(x);
  std::int64_t const n = rows.rows * rows.width;
  if (n == 0) return 0;
  auto* const sum = reinterpret_cast<unsigned long long*>(scratch(sizeof(unsigned long long)));
  CUDA_CHECK(cudaMemsetAsync(sum, 0, sizeof *sum, stream()));
  cuda::hash_kernel<<<cuda::grid_of(cuda::pieces(n, cuda::kThreads), 4096), cuda::kThreads, 0,
                      stream()>>>(sum, rows, place);
  CUDA_CHECK(cudaGetLastError());
  return fetch(sum);
}

}  // namespace copus
