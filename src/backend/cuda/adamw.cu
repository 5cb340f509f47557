#include <algorithm>
#include <cstdint>

#include "backend/cuda/check.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"
#include "copus/core/error.h"

namespace copus::cuda {
namespace {

constexpr int kThreads = 256;
// Enough blocks to fill any GPU; each thread strides over the rest.
constexpr std::int64_t kMaxBlocks = 4096;

struct AdamRanges {
  float* weight;      // (n)
  float* m;           // (n)
  float* v;           // (n)
  const float* grad;  // (n)
};

__device__ float4 load4(const float* p, std::int64_t quad) {
  return reinterpret_cast<const float4*>(p)[quad];
}
__device__ void store4(float* p, std::int64_t quad, float4 value) {
  reinterpret_cast<float4*>(p)[quad] = value;
}

// Where the new weights go as well: nowhere, or to fp32 or bf16.
struct NoCopy {
  __device__ void put(std::int64_t, float) const {}
  __device__ void put4(std::int64_t, float4) const {}
};
struct FloatCopy {
  float* to;
  __device__ void put(std::int64_t i, float w) const { to[i] = w; }
  __device__ void put4(std::int64_t quad, float4 w) const { store4(to, quad, w); }
};
struct Bf16Copy {
  std::uint16_t* to;
  __device__ void put(std::int64_t i, float w) const { to[i] = math::to_bf16(w); }
  __device__ void put4(std::int64_t quad, float4 w) const {
    reinterpret_cast<ushort4*>(to)[quad] = make_ushort4(math::to_bf16(w.x), math::to_bf16(w.y),
                                                        math::to_bf16(w.z), math::to_bf16(w.w));
  }
};

// Memory-bound: 28 bytes an element and the copy's, so all accesses are of 16 bytes where the
// addresses allow it. `quads` groups of four come first, then single elements up to n; the formula
// does not care.
template <class Copy>
__global__ void __launch_bounds__(kThreads, kBlocksAtOnce)
    adamw_kernel(AdamRanges r, Copy copy, std::int64_t quads, std::int64_t n, float grad_scale,
                 math::AdamScalars scalars) {
  std::int64_t const first = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  std::int64_t const step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = first; i < quads; i += step) {
    float4 w = load4(r.weight, i), m = load4(r.m, i), v = load4(r.v, i);
    float4 const g = load4(r.grad, i);
    math::adamw(w.x, m.x, v.x, g.x * grad_scale, scalars);
    math::adamw(w.y, m.y, v.y, g.y * grad_scale, scalars);
    math::adamw(w.z, m.z, v.z, g.z * grad_scale, scalars);
    math::adamw(w.w, m.w, v.w, g.w * grad_scale, scalars);
    store4(r.weight, i, w);
    store4(r.m, i, m);
    store4(r.v, i, v);
    copy.put4(i, w);
  }
  for (std::int64_t i = 4 * quads + first; i < n; i += step) {
    math::adamw(r.weight[i], r.m[i], r.v[i], r.grad[i] * grad_scale, scalars);
    copy.put(i, r.weight[i]);
  }
}

// Four elements of it are one access.
bool aligned(const TensorView& x) {
  std::uintptr_t const four = x.dtype == DType::bf16 ? 8 : 16;
  return reinterpret_cast<std::uintptr_t>(x.data) % four == 0;
}

template <class Copy>
void launch(cudaStream_t stream, const AdamRanges& ranges, const Copy& copy, std::int64_t quads,
            std::int64_t n, float grad_scale, const math::AdamScalars& scalars) {
  std::int64_t const blocks = (std::max(quads, n - 4 * quads) + kThreads - 1) / kThreads;
  adamw_kernel<<<static_cast<unsigned>(std::min(blocks, kMaxBlocks)), kThreads, 0, stream>>>(
      ranges, copy, quads, n, grad_scale, scalars);
  CUDA_CHECK(cudaGetLastError());
}

}  // namespace

void adamw(cudaStream_t stream, TensorView weight, TensorView m, TensorView v,
           const TensorView& grad, float grad_scale, const math::AdamScalars& scalars,
           const TensorView& copy) {
  std::int64_t const n = weight.numel();
  for (TensorView const& x : {weight, m, v, grad}) {
    COPUS_CHECK(x.dtype == DType::f32 && x.contiguous(), "adamw takes contiguous f32 ranges");
    COPUS_CHECK(x.numel() == n, "adamw takes ranges of one length");
  }
  if (n == 0) return;  // a grid of no blocks is an error to CUDA
  if (copy) {
    COPUS_CHECK((copy.dtype == DType::f32 || copy.dtype == DType::bf16) && copy.contiguous() &&
                    copy.numel() == n,
                "adamw's copy is f32 or bf16, contiguous, and as long as the weights");
  }
  bool const whole =
      aligned(weight) && aligned(m) && aligned(v) && aligned(grad) && (!copy || aligned(copy));
  std::int64_t const quads = whole ? n / 4 : 0;
  AdamRanges const ranges{weight.ptr<float>(), m.ptr<float>(), v.ptr<float>(), grad.ptr<float>()};
  if (!copy) return launch(stream, ranges, NoCopy{}, quads, n, grad_scale, scalars);
  if (copy.dtype == DType::f32)
    return launch(stream, ranges, FloatCopy{copy.ptr<float>()}, quads, n, grad_scale, scalars);
  launch(stream, ranges, Bf16Copy{static_cast<std::uint16_t*>(static_cast<void*>(copy.data))},
         quads, n, grad_scale, scalars);
}

}  // namespace copus::cuda
