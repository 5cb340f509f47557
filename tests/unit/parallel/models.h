// Small models and the layouts they allow, for the tests that go over all of them.
#pragma once
#include <vector>

#include "copus/core/config.h"
#include "copus/parallel/layout.h"

namespace copus {

inline ModelConfig model_of(Family family, std::int64_t layers, std::int64_t hidden,
                            std::int64_t heads, std::int64_t kv_heads, std::int64_t ffn,
                            std::int64_t vocab, bool tied) {
  ModelConfig model;
  model.family = family;
  model.layers = layers;
  model.hidden = hidden;
  model.heads = heads;
  model.kv_heads = kv_heads;
  model.ffn = ffn;
  model.vocab = vocab;
  model.tie_embeddings = tied;
  model.seq_len = 16;
  model.max_positions = 6;
  return model;
}

// Together they have everything that changes a shard: pp and tp up to 16, grouped and replicated kv
// heads, a vocabulary that tp does not divide (or leaves a rank without any), ties, biases.
inline std::vector<ModelConfig> small_models() {
  return {
      model_of(Family::llama, 16, 4, 4, 2, 4, 11, false),   // deep
      model_of(Family::qwen2, 2, 16, 16, 2, 16, 19, true),  // wide, tied
      model_of(Family::llama, 4, 8, 4, 4, 12, 257, true),   // bytes vocabulary, tied
      model_of(Family::gpt2, 3, 8, 4, 4, 8, 5, true),       // uneven over stages, positions
  };
}

// Every legal layout of at most `world` ranks, with ZeRO on and off.
inline std::vector<Layout> layouts_up_to(const ModelConfig& model, int world) {
  std::vector<Layout> layouts;
  for (int dp = 1; dp <= world; ++dp) {
    for (int tp = 1; dp * tp <= world; ++tp) {
      for (int pp = 1; dp * tp * pp <= world; ++pp) {
        for (int v : {1, 2}) {
          for (int zero : {0, 1}) {
            Layout const layout{dp, tp, pp, v, zero, false};
            if (illegal_reasons(model, layout, 0, 0).empty()) layouts.push_back(layout);
          }
        }
      }
    }
  }
  return layouts;
}

}  // namespace copus
