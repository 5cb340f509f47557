// The launchers of our own CUDA kernels: each enqueues on `stream` and returns at once.
// Views are of device memory, f32 and contiguous; a failed launch throws CudaError.
#pragma once
#include <cuda_runtime_api.h>

#include "copus/core/math.h"
#include "copus/core/tensor.h"

namespace copus::cuda {

// One pass over flat ranges of equal length; the gradient is multiplied by grad_scale first.
void adamw(cudaStream_t stream, TensorView weight, TensorView m, TensorView v,
           const TensorView& grad, float grad_scale, const math::AdamScalars& scalars);

}  // namespace copus::cuda
