// The weights of a stage as the model's code names them: views into one flat buffer.
#pragma once
#include <vector>

#include "copus/core/tensor.h"
#include "copus/parallel/params.h"

namespace copus {

// Empty views stand for what a family does not have. Weights are (out, in).
struct LayerWeights {
  TensorView norm1, norm1_bias;        // (C)
  TensorView qkv, qkv_bias;            // ((H + 2 K) D, C): q, k and v side by side
  TensorView attn_out, attn_out_bias;  // (C, H D), (C)
  TensorView norm2, norm2_bias;        // (C)
  TensorView gate_up, gate_up_bias;    // (2 F, C): gate over up; GPT-2 (F, C)
  TensorView down, down_bias;          // (C, F), (C)
};

struct StageWeights {
  TensorView embed;      // (V, C)
  TensorView positions;  // (max_positions, C)
  std::vector<LayerWeights> layers;
  TensorView final_norm, final_norm_bias;  // (C)
  TensorView head;                         // (V, C); the embedding itself when tied
};

// Views of `flat`, which is laid out as `layout` says; used for weights and for gradients alike.
StageWeights stage_weights(const ModelConfig& model, const std::vector<Param>& table,
                           const FlatLayout& layout, const TensorView& flat);

}  // namespace copus
