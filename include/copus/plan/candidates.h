// Everything a cluster could run of a configuration: each legal layout, micro-batch, recompute mode
// and batch of the keys left "auto", priced, and refused with a reason where memory does not hold
// it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "copus/core/config.h"
#include "copus/parallel/memory.h"
#include "copus/plan/cost.h"

namespace copus {

struct Candidate {
  StepShape shape;
  std::int64_t batch = 0;
  StepCost cost;
  StageMemory memory;  // the worst stage
  bool feasible = true;
  std::string reason;  // why not; empty when feasible

  std::int64_t micro_batches() const { return batch / (shape.layout.dp * shape.micro); }
  double step_seconds() const { return cost.seconds(micro_batches()); }
  double tokens_per_second(const ModelConfig& model) const {
    return static_cast<double>(batch * model.seq_len) / step_seconds();
  }
};

// The layouts of a world, legal for the model and for at least one batch.
struct LayoutChoice {
  std::vector<Layout> layouts;
  int ranks = 0;  // that each of them uses: the whole world, or the most that any can
};

// Batches the planner may choose between: the schedule's, or else a ladder from batch.min to
// batch.max whose steps are half and twice, and one and a half between them. Where a dp
// that divides the world (times batch.micro, where given) divides one of these, the batches that it
// divides are at most a factor of two apart and reach as near to both ends as they can.
std::vector<std::int64_t> batches_of(const Config& config, int world);

// "auto" is every tp that divides the heads, every pp up to the layers, virtual stages that cut the
// layers evenly, ZeRO 0 and 1, sequence parallelism on and off, and the dp that fills the world.
// Throws ConfigError with everything that stands in the way when none is legal.
//
// For a run, fixed or not, each layout has one name: keys that do nothing (virtual stages at pp 1,
// sequence parallelism at tp 1, "auto" ZeRO at dp 1) are off there, whether given or not.
enum class CandidateUse { list, fixed, run };
LayoutChoice layouts_of(const Config& config, int world, CandidateUse use = CandidateUse::list);

// In a fixed order. The configuration has been checked and its model has sizes. Memory is that of
// the candidate's own batch, but for a run that may change it: that of the arena that it would cut,
// for the most micro-batches that it may come to.
std::vector<Candidate> candidates_of(const Config& config, const Cluster& cluster, int world,
                                     CandidateUse use = CandidateUse::list);

}  // namespace copus
