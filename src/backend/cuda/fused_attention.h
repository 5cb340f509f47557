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

// Where the kernels may write beside their outputs.
struct AttentionRoom {
  std::int64_t most = 0;  // bytes
  // So many of them, 256-byte aligned, valid until the operation that asks has been queued.
  std::function<std::byte*(std::int64_t bytes)> take;
};

class FusedAttention {
 public:
  FusedAttention();
  ~FusedAttention();

  // Enqueue it and return true; or false where addresses are not what the kernels take, or where
  // cuDNN has no plan for the sizes that the room is enough for, which is said once.
  bool forward(cudaStream_t stream, const AttentionTensors& a, const AttentionRoom& room);
  bool backward(cudaStream_t stream, const AttentionTensors& a, const AttentionGradients& d,
                const AttentionRoom& room);

 private:
  struct State;
  State& state();  // made at the first call: cuDNN takes its time
  std::unique_ptr<State> state_;
};

}  // namespace copus::cuda
