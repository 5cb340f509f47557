// The optimizer's step over flat buffers: norm, clip, AdamW.
#pragma once
#include <vector>

#include "copus/backend/backend.h"
#include "copus/core/config.h"
#include "copus/parallel/params.h"
#include "copus/state/train_state.h"

namespace copus {

class Optimizer {
 public:
  Optimizer(const std::vector<Param>& table, const FlatLayout& layout,
            const OptimizerConfig& config, Backend& backend);

  // Norm of `gradients` (a sum over `tokens` loss-bearing tokens) as a mean: sqrt(sum of squares) /
  // tokens, fp64, every parameter counted once, before clipping.
  double gradient_norm(const TensorView& gradients, std::int64_t tokens) const;
  // One AdamW step with the mean gradient clipped to config.clip: g min(1, clip / (norm + 1e-6)).
  // Moves the betas' products.
  void update(TrainState& state, const TensorView& gradients, std::int64_t tokens, double norm,
              double lr) const;

 private:
  // Neighbouring parameters that share weight decay or its absence.
  struct Range {
    std::int64_t offset = 0, size = 0;
    bool decays = false;
  };
  std::vector<Range> ranges_;
  std::vector<Range> counted_;
  OptimizerConfig config_;
  Backend& backend_;
};

}  // namespace copus
