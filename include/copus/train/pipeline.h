// Carries out a pipeline schedule: the instructions of parallel/schedule.h on a stage and its
// neighbours.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>

#include "copus/comm/mesh.h"
#include "copus/model/stage.h"

namespace copus {

using MicroBatchOf = std::function<MicroBatch(std::int64_t micro)>;
// A layer's gradient (Stage::GradientReady's number) has the parts of micro-batches 0 .. micro.
using GradientOf = std::function<void(std::int64_t micro, std::int64_t layer)>;

struct PipelineResult {
  double loss = 0.0;  // sum on the last stage, 0 on the others
  // On the last stage: seconds from one micro-batch's end to the next once the pipeline is full,
  // which is the pace of the slowest stage. None with a single micro-batch, or virtual stages,
  // whose chunks end in bursts.
  std::optional<double> pace;
};

// Forward and backward of micro-batches 0 .. count - 1 through every stage, messages between stages
// under them where the transport can start some.
PipelineResult run_pipeline(Stage& stage, const Mesh& mesh, std::int64_t count,
                            const MicroBatchOf& batch_of, const GradientOf& ready);
// Forward alone, without dropout, one micro-batch after the other.
double run_forward_only(Stage& stage, const Mesh& mesh, std::int64_t count,
                        const MicroBatchOf& batch_of);

}  // namespace copus
