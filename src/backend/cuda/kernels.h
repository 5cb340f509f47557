// The launchers of our own CUDA kernels: each enqueues on `stream` and returns at once.
// Addresses are of device memory, views f32 and contiguous; a failed launch throws CudaError.
#pragma once
#include <cuda_runtime_api.h>

#include "backend/cuda/gemm.h"
#include "backend/rows.h"
#include "copus/core/math.h"
#include "copus/core/tensor.h"

namespace copus::cuda {

// One pass over flat ranges of equal length; the gradient is multiplied by grad_scale first.
// `copy`, f32 or bf16, gets the new weights too; or empty.
void adamw(cudaStream_t stream, TensorView weight, TensorView m, TensorView v,
           const TensorView& grad, float grad_scale, const math::AdamScalars& scalars,
           const TensorView& copy = {});

// Every row of the product's output becomes its bias, which may be null for zeros, plus what was
// there if `keep`.
void add_bias(cudaStream_t stream, const Product& product, bool keep);

// out[c] += the sum over b, in a fixed order, of partials[b * stride + c], c < width.
struct PartialSums {
  const float* partials = nullptr;
  std::int64_t blocks = 0, stride = 0, width = 0;
};
void fold_columns(cudaStream_t stream, float* out, const PartialSums& sums);

}  // namespace copus::cuda
