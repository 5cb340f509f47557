// The tensors a stage keeps and scribbles on for one micro-batch: the one list that the arena is
// cut from, the memory plan adds up and the model's code indexes.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "copus/core/attention_task.h"
#include "copus/core/config.h"
#include "copus/core/dtype.h"
#include "copus/parallel/layout.h"

namespace copus {

struct TensorSpec {
  const char* name = "";
  DType dtype = DType::f32;
  int dims = 0;
  std::array<std::int64_t, 4> size{};

  std::int64_t numel() const;
  std::int64_t bytes() const;  // rounded up as Arena::take does
};

// The type of activations and of the weights that computing reads.
DType compute_type(Precision precision);

// Of the lists below, row statistics, logits and angles are f32, the others of the compute type.

// Kept from a layer's forward to its backward. N = B T rows; R = N, or N / tp where sequence
// parallelism cuts the rows of what lies between the tensor-parallel regions.
enum class Saved : std::uint8_t {
  x_in,   // (R, C) block input
  norm1,  // (N, C) normalised input of attention, gathered
  mean1,
  rstd1,  // (R); mean: LayerNorm only
  qkv,    // (B, T, H + 2 K, D) after bias and rope: q heads, k heads, v heads
  att,    // (B, T, H, D) attention output before its projection
  lse,    // (B, H, T)
  x_mid,  // (R, C) after the attention residual
  norm2,
  mean2,
  rstd2,
  gate_up,  // (N, 2 F): gate then up; GPT-2: (N, F) before GELU
  ffn,      // (N, F) after the nonlinearity
  count
};
std::vector<TensorSpec> saved_tensors(const ModelConfig& model, const Layout& layout,
                                      std::int64_t micro, Precision precision);  // by Saved

// Shared by all layers and live only within one forward or backward.
enum class Scratch : std::uint8_t {
  ids,
  targets,  // (N) i32
  rope,     // (T, D/2, 2) cosines and sines, filled once; GPT-2 has none
  branch,   // (N, C) a branch's output on its way to the residual; the gradient of a norm's output
            // in backward
  d_x,      // (N, C) gradient of the residual stream
  d_qkv,    // as qkv
  d_att,    // as att
  d_gate_up,  // as gate_up
  d_ffn,      // (N, F)
  attention,  // u8: what attention_workspace_bytes is more than d_gate_up and d_ffn, which are dead
              // while attention computes: all three are its workspace
  count
};
std::vector<TensorSpec> scratch_tensors(const ModelConfig& model, const Layout& layout,
                                        std::int64_t micro, Precision precision,
                                        AttentionLibrary library = AttentionLibrary::none);

// The attention of a model's layers, as the choice of its kernel looks at it.
AttentionTask attention_task(const ModelConfig& model, Precision precision);
// What the device's library may write beside attention's outputs; 0 where our own kernels compute
// it, which want next to nothing.
std::int64_t attention_workspace_bytes(const ModelConfig& model, const Layout& layout,
                                       std::int64_t micro, Precision precision,
                                       AttentionLibrary library);

// First and last stage only.
enum class Head : std::uint8_t {
  final_norm,  // (N, C)
  final_mean,
  final_rstd,  // (N)
  x_final,     // (R, C) output of the last block
  d_final,     // (N, C)
  logits,  // (head_rows, V padded, local) in rows of whole 256 bytes; their gradient lies over them
  row_max,
  row_sum,
  target_logit,
  losses,  // (N)
  count
};
std::vector<TensorSpec> head_tensors(const ModelConfig& model, const Layout& layout,
                                     std::int64_t micro, Precision precision);

// What lies between stages, (R, C): of one message of each kind that has no other place. An input
// received changes places with that of a free micro-batch, a gradient received with d_x.
enum class OnTheWay : std::uint8_t { output, input, output_gradient, count };
// Those that a stage sends or receives; the others are empty.
std::vector<TensorSpec> message_tensors(const ModelConfig& model, const Layout& layout,
                                        std::int64_t micro, Precision precision, int pp_rank);

// Rows of logits held at a time: the loss and its gradient go over the micro-batch in pieces of
// this many rows.
std::int64_t head_rows(const ModelConfig& model, const Layout& layout, std::int64_t micro);

}  // namespace copus
