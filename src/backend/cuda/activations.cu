#include <algorithm>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"

namespace copus {
namespace cuda {
namespace {

constexpr int kThreads = 256;

template <class T, int kOut, int kIn>
struct Streams {
  RowsOf<T> out[kOut], in[kIn];
};

// out = formula(in), element by element. Each thread has read its elements before it writes them,
// so an output may be one of the inputs.
template <class T, class Formula, int kOut, int kIn, int kWidth>
__global__ void __launch_bounds__(kThreads) elementwise_kernel(Streams<T, kOut, kIn> s) {
  std::int64_t const first = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * kWidth;
  std::int64_t const step = std::int64_t{gridDim.x} * kThreads * kWidth;
  for (std::int64_t row = blockIdx.y; row < s.out[0].rows; row += gridDim.y) {
    for (std::int64_t i = first; i < s.out[0].width; i += step) {
      Pack<kWidth> in[kIn], out[kOut];
#pragma unroll
      for (int k = 0; k < kIn; ++k) {
        in[k] = load<kWidth>(s.in[k].data + row * s.in[k].stride + i);
      }
#pragma unroll
      for (int w = 0; w < kWidth; ++w) {
        float x[kIn], y[kOut];
#pragma unroll
        for (int k = 0; k < kIn; ++k) x[k] = in[k].at[w];
        Formula::apply(y, x);
#pragma unroll
        for (int k = 0; k < kOut; ++k) out[k].at[w] = y[k];
      }
#pragma unroll
      for (int k = 0; k < kOut; ++k) {
        store<kWidth>(s.out[k].data + row * s.out[k].stride + i, out[k]);
      }
    }
  }
}

template <class T, class Formula, int kOut, int kIn>
void launch(cudaStream_t stream, const std::array<TensorView, kOut + kIn>& tensors) {
  auto const rows = same_rows<kOut + kIn, T>(tensors);
  if (rows[0].rows == 0 || rows[0].width == 0) return;
  Streams<T, kOut, kIn> s;
  for (std::size_t i = 0; i < kOut; ++i) s.out[i] = rows[i];
  for (std::size_t i = 0; i < kIn; ++i) s.in[i] = rows[kOut + i];
  bool const fours = std::all_of(rows.begin(), rows.end(), in_fours<T>);
  dim3 const grid(grid_of(pieces(rows[0].width, kThreads * (fours ? 4 : 1)), 1 << 20),
                  grid_of(rows[0].rows));
  if (fours) {
    elementwise_kernel<T, Formula, kOut, kIn, 4><<<grid, kThreads, 0, stream>>>(s);
  } else {
    elementwise_kernel<T, Formula, kOut, kIn, 1><<<grid, kThreads, 0, stream>>>(s);
  }
  CUDA_CHECK(cudaGetLastError());
}

// The first kOut tensors are outputs; all are of one type.
template <class Formula, int kOut, int kIn>
void elementwise(cudaStream_t stream, const std::array<TensorView, kOut + kIn>& tensors) {
  with_compute_type(tensors[0].dtype, [&](auto type) {
    launch<decltype(type), Formula, kOut, kIn>(stream, tensors);
  });
}

struct Add {
  static __device__ void apply(float (&y)[1], const float (&x)[2]) { y[0] = x[0] + x[1]; }
};
struct Gelu {
  static __device__ void apply(float (&y)[1], const float (&x)[1]) { y[0] = math::gelu(x[0]); }
};
struct GeluBackward {  // d_out, x
  static __device__ void apply(float (&y)[1], const float (&x)[2]) {
    y[0] = x[0] * math::gelu_grad(x[1]);
  }
};
struct Swiglu {  // gate, up
  static __device__ void apply(float (&y)[1], const float (&x)[2]) {
    y[0] = math::silu(x[0]) * x[1];
  }
};
struct SwigluBackward {  // d_gate, d_up from d_out, gate, up
  static __device__ void apply(float (&y)[2], const float (&x)[3]) {
    y[0] = x[0] * x[2] * math::silu_grad(x[1]);
    y[1] = x[0] * math::silu(x[1]);
  }
};

}  // namespace
}  // namespace cuda

void CudaBackend::add(TensorView out, const TensorView& a, const TensorView& b) {
  cuda::elementwise<cuda::Add, 1, 2>(stream(), {out, a, b});
}

void CudaBackend::gelu(TensorView out, const TensorView& x) {
  cuda::elementwise<cuda::Gelu, 1, 1>(stream(), {out, x});
}

void CudaBackend::gelu_backward(TensorView d_x, const TensorView& d_out, const TensorView& x) {
  cuda::elementwise<cuda::GeluBackward, 1, 2>(stream(), {d_x, d_out, x});
}

void CudaBackend::swiglu(TensorView out, const TensorView& gate, const TensorView& up) {
  cuda::elementwise<cuda::Swiglu, 1, 2>(stream(), {out, gate, up});
}

void CudaBackend::swiglu_backward(TensorView d_gate, TensorView d_up, const TensorView& d_out,
                                  const TensorView& gate, const TensorView& up) {
  cuda::elementwise<cuda::SwigluBackward, 2, 3>(stream(), {d_gate, d_up, d_out, gate, up});
}

}  // namespace copus
