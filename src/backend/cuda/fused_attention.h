// Causal attention of bf16 by cuDNN's fused kernels. A plan is made for each set of sizes the first
// time, and kept.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "copus/core/tensor.h"

namespace copus::cuda {

// q, out (B, T, H, D); k, v (B, T, K, D), rows strided; lse (B, H, T) f32.
struct AttentionTensors {
  TensorView q, k, v, out, lse;
  float scale = 1.0f;
};
struct AttentionGradients {
  TensorView d_q, d_k, d_v, d_out;
};

class FusedAttention {
 public:
  // Device memory of at least so many bytes, valid until the operation that asks has been queued.
  using Workspace = std::function<std::byte*(std::int64_t bytes)>;

  FusedAttention();
  ~FusedAttention();

  // Enqueue it and return true; or false where addresses are not what the kernels take, or where
  // cuDNN has no plan for the sizes, which is said once.
  bool forward(cudaStream_t stream, const AttentionTensors& a, const Workspace& workspace);
  bool backward(cudaStream_t stream, const AttentionTensors& a, const AttentionGradients& d,
                const Workspace& workspace);

 private:
  struct State;
  State& state();  // made at the first call: cuDNN takes its time
  std::unique_ptr<State> state_;
};

}  // namespace copus::cuda
