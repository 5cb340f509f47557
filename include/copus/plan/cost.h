// Seconds of a step, predicted: t = alpha + beta m for m micro-batches on a data-parallel rank.
// docs/planner.md explains the terms (after Narayanan et al. 2021, arXiv 2104.04473) and says how
// far they are off.
#pragma once
#include <cstdint>
#include <vector>

#include "copus/core/config.h"
#include "copus/parallel/layout.h"
#include "copus/parallel/memory.h"
#include "copus/parallel/schedule.h"
#include "copus/plan/hardware.h"

namespace copus {

enum class AttentionKernel { flash, flash1, fused, unfused };
enum class NormKernel { fused, plain };

// Hardware in nodes, and the kernels that run on it. Rank r is in node r / gpus_per_node.
struct Cluster {
  Hardware hardware;
  std::int64_t nodes = 1, gpus_per_node = 1;
  AttentionKernel attention = AttentionKernel::flash;
  NormKernel norm = NormKernel::fused;

  std::int64_t world() const { return nodes * gpus_per_node; }
};
// `hardware` has been found by name, file or measurement.
Cluster cluster_of(const ClusterConfig& config, Hardware hardware);

// What a step runs, apart from its batch.
struct StepShape {
  Layout layout;
  std::int64_t micro = 1;
  Recompute recompute = Recompute::none;
  bool operator==(const StepShape&) const = default;
};

// The line of a step time, and what it is made of. `compute`, `tensor` and `messages` add up to
// beta; the rest to alpha.
struct StepCost {
  double alpha = 0.0, beta = 0.0;
  // Of one micro-batch, on the stage that sets the pace.
  double compute = 0.0, tensor = 0.0, messages = 0.0;
  // Of the step.
  double bubble = 0.0, reduce = 0.0, gather = 0.0, optimizer = 0.0;

  double seconds(std::int64_t micro_batches) const {
    return alpha + beta * static_cast<double>(micro_batches);
  }
};

// Parameters of every stage: one value for all micro-batches of a layout.
std::vector<StageElements> stage_sizes(const ModelConfig& model, const Layout& layout);

// The cost near `micro_batches`: with uneven stages another stage may set the pace of a short step
// than of a long one, so the line is exact for this number and a lower bound for others.
StepCost step_cost(const ModelConfig& model, const StepShape& shape, std::int64_t micro_batches,
                   Precision precision, const Cluster& cluster,
                   const std::vector<StageElements>& sizes);

// The line of a pipeline's seconds near m micro-batches, without the simulator: the longest path
// through the schedule; with uneven stages and m < pp a lower bound. `alone` is Hardware's: with
// ranks that share processors the path is run that much faster, but all the work still takes its
// time: the longer of the two, a lower bound. `can_start`: Hardware's
// overlap_messages, the share of messages that are started where messages_of says so. Messages are
// exact for even stages and a whole number of pp micro-batches, else a lower bound.
struct PipelineCost {
  double alpha = 0.0, beta = 0.0;
  int stage = 0;      // that sets the pace
  double busy = 0.0;  // beta without its messages between stages
};
PipelineCost pipeline_cost(const Layout& layout, const PipelineTimes& times,
                           std::int64_t micro_batches, double alone = 1.0, double can_start = 0.0);

// Share of the cluster's matrix peak, as MFU is defined: 6 N_matmul + 12 L h s FLOPs a token.
double mfu_of(const ModelConfig& model, double tokens_per_second, std::int64_t ranks,
              double peak_flops);

}  // namespace copus
