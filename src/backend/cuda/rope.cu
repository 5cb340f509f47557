#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/launch.cuh"

namespace copus {
namespace cuda {
namespace {

constexpr int kThreads = 256;

struct RopeSizes {
  std::int64_t batch_stride, row_stride, head_stride, length, rows, heads, half, first_position;
};

// A block takes a row (b, t): all its heads share the angles of its position.
template <class T>
__global__ void __launch_bounds__(kThreads)
    rope_kernel(T* x, const float* table, RopeSizes s, float sign) {
  int const half = static_cast<int>(s.half), pairs = static_cast<int>(s.heads) * half;
  for (std::int64_t r = blockIdx.x; r < s.rows; r += gridDim.x) {
    std::int64_t const b = r / s.length, t = r % s.length;
    T* const row = x + b * s.batch_stride + t * s.row_stride;
    const float* const angle = table + (s.first_position + t) * s.half * 2;
    for (int p = static_cast<int>(threadIdx.x); p < pairs; p += kThreads) {
      int const i = p % half;
      T* const low = row + p / half * s.head_stride + i;
      float a = get(low[0]), c = get(low[half]);
      math::rotate(a, c, angle[2 * i], sign * angle[2 * i + 1]);
      put(low[0], a);
      put(low[half], c);
    }
  }
}

template <class T>
void turn(cudaStream_t stream, T* x, const float* table, const RopeSizes& s, float sign) {
  rope_kernel<<<grid_of(s.rows, 1 << 20), kThreads, 0, stream>>>(x, table, s, sign);
  CUDA_CHECK(cudaGetLastError());
}

}  // namespace
}  // namespace cuda

void CudaBackend::rope(TensorView x, const TensorView& table, std::int64_t first_position,
                       bool inverse) {
  COPUS_CHECK(x.dims == 4 && x.stride[3] == 1, "x (B, T, heads, D)");
  std::int64_t const T = x.size[1], heads = x.size[2], half = x.size[3] / 2;
  COPUS_CHECK(x.size[3] % 2 == 0 && table.dims == 3 && table.size[1] == half &&
                  table.size[2] == 2 && table.contiguous() && table.dtype == DType::f32,
              "an angle for each pair of a head");
  COPUS_CHECK(first_position >= 0 && first_position + T <= table.size[0],
              "the table holds every position");
  if (x.numel() == 0) return;
  cuda::RopeSizes const sizes{x.stride[0],   x.stride[1], x.stride[2], T,
                              x.size[0] * T, heads,       half,        first_position};
  with_compute_type(x.dtype, [&](auto type) {
    cuda::turn(stream(), x.ptr<decltype(type)>(), table.ptr<float>(), sizes,
               inverse ? -1.0f : 1.0f);
  });
}

}  // namespace copus
