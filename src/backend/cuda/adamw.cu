#include <algorithm>
#include <cstdint>

#include "backend/cuda/check.h"
#include "backend/cuda/kernels.h"
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

// Memory-bound: 28 bytes an element, so all accesses are of 16 bytes where the addresses allow it.
// `quads` groups of four come first, then single elements up to n; the formula does not care.
__global__ void __launch_bounds__(kThreads)
    adamw_kernel(AdamRanges r, std::int64_t quads, std::int64_t n, float grad_scale,
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
  }
  for (std::int64_t i = 4 * quads + first; i < n; i += step)
    math::adamw(r.weight[i], r.m[i], r.v[i], r.grad[i] * grad_scale, scalars);
}

bool aligned16(const TensorView& x) {
  return reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0;
}

}  // namespace

void adamw(cudaStream_t stream, TensorView weight, TensorView m, TensorView v,
           const TensorView& grad, float grad_scale, const math::AdamScalars& scalars) {
  std::int64_t const n = weight.numel();
  for (TensorView const& x : {weight, m, v, grad}) {
    COPUS_CHECK(x.dtype == DType::f32 && x.contiguous(), "adamw takes contiguous f32 ranges");
    COPUS_CHECK(x.numel() == n, "adamw takes ranges of one length");
  }
  if (n == 0) return;  // a grid of no blocks is an error to CUDA
  bool const aligned = aligned16(weight) && aligned16(m) && aligned16(v) && aligned16(grad);
  std::int64_t const quads = aligned ? n / 4 : 0;
  std::int64_t const blocks = (std::max(quads, n - 4 * quads) + kThreads - 1) / kThreads;
  AdamRanges const ranges{weight.ptr<float>(), m.ptr<float>(), v.ptr<float>(), grad.ptr<float>()};
  adamw_kernel<<<static_cast<unsigned>(std::min(blocks, kMaxBlocks)), kThreads, 0, stream>>>(
      ranges, quads, n, grad_scale, scalars);
  CUDA_CHECK(cudaGetLastError());
}

}  // namespace copus::cuda
