// Seconds of one micro-batch through a block, the embedding and the head, on one rank.
#pragma once
#include "copus/plan/cost.h"

namespace copus::detail {

struct Pass {
  double compute = 0.0, tensor = 0.0;  // tensor: exposed collectives of tensor parallelism
  double seconds() const { return compute + tensor; }
  Pass& operator+=(const Pass& other) {
    compute += other.compute;
    tensor += other.tensor;
    return *this;
  }
};

struct Passes {
  Pass forward, backward;
};

struct LayerCosts {
  Passes block;  // one layer, with what is computed again in backward
  Passes embedding, head;
};
LayerCosts layer_costs(const ModelConfig& model, const StepShape& shape, Precision precision,
                       const Cluster& cluster);

}  // namespace copus::detail
