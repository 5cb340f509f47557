// The optimizer's step over the stretches of the flat buffers that a rank owns: norm, clip, AdamW.
#pragma once
#include <vector>

#include "copus/backend/backend.h"
#include "copus/core/config.h"
#include "copus/parallel/params.h"
#include "copus/state/train_state.h"
#include "copus/train/batch_rule.h"
#include "copus/train/gradients.h"

namespace copus {

class Optimizer {
 public:
  Optimizer(const std::vector<Param>& table, const FlatLayout& flat,
            const std::vector<Owned>& owned, const OptimizerConfig& config, Backend& backend);

  // Sum of squares, fp64, of the owned gradients that count: over the ranks that own different
  // elements this adds up to every parameter once.
  double square_sum(const TensorView& gradients) const;
  // One AdamW step on what is owned, with the mean gradient (a sum over `tokens`) clipped: g min(1,
  // clip / (norm + 1e-6)), `norm` being that of the mean gradient over all ranks. The counters have
  // the betas' products with this step's in. `weights`: flat, gets what is owned of the new master
  // where that lies apart; else empty.
  void update(const TrainState& state, const TensorView& gradients, const TensorView& weights,
              std::int64_t tokens, double norm, const StepScalars& step) const;

 private:
  // Neighbouring elements that share weight decay, or its absence.
  struct Range {
    std::int64_t flat = 0, state = 0, size = 0;
    bool decays = false;
  };
  // Neighbouring elements whose squares count on this rank. As few as can be: on a GPU each sum is
  // waited for.
  struct Stretch {
    std::int64_t flat = 0, size = 0;
  };
  std::vector<Range> ranges_;
  std::vector<Stretch> counted_;
  OptimizerConfig config_;
  Backend& backend_;
};

}  // namespace copus
