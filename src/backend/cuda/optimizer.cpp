#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/kernels.h"

namespace copus {

void CudaBackend::adamw(TensorView weight, TensorView m, TensorView v, const TensorView& grad,
                        float grad_scale, const math::AdamScalars& scalars,
                        const TensorView& copy) {
  cuda::adamw(stream(), weight, m, v, grad, grad_scale, scalars, copy);
}

}  // namespace copus
