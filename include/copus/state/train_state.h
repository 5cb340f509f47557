// All that survives a step. A checkpoint is this on disk, a re-shard is this in motion, a test
// compares two.
#pragma once
#include <cstdint>

#include "copus/core/tensor.h"
#include "copus/plan/gns.h"
#include "copus/plan/planner_memory.h"

namespace copus {

// What the planner has chosen for the next steps; batch 0: nothing.
struct ChosenPlan {
  std::int32_t dp = 0, tp = 0, pp = 0, virtual_stages = 0, zero = 0, sequence_parallel = 0;
  std::int64_t micro = 0, batch = 0;
  bool operator==(const ChosenPlan&) const = default;
};

// The layout-free part: small, equal on every rank.
struct Counters {
  std::int64_t step = 0;     // steps done
  std::int64_t tokens = 0;   // consumed
  std::int64_t samples = 0;  // consumed: the whole data position
  std::uint64_t seed = 0;
  std::int64_t updates = 0;                         // optimizer steps taken (skipped ones left out)
  double beta1_product = 1.0, beta2_product = 1.0;  // running products for the bias correction
  std::int64_t skipped_in_a_row = 0;
  std::int64_t reference_batch = 0;  // of batch_rule
  GnsHistory gns;                    // all zeros where the noise scale is not measured
  ChosenPlan plan;

  bool operator==(const Counters&) const = default;
};

// Flat f32 buffers of this rank, equal offsets in all three (parallel/params.h's FlatLayout).
struct TrainState {
  TensorView master, m, v;
  Counters counters;
  PlannerMemory planner;  // on rank 0; empty where no planner runs
};

}  // namespace copus
