// Carries out a pipeline schedule: the instructions of parallel/schedule.h on a stage and its
// neighbours.
#pragma once
#include <cstdint>
#include <functional>

#include "copus/comm/mesh.h"
#include "copus/model/stage.h"

namespace copus {

using MicroBatchOf = std::function<MicroBatch(std::int64_t micro)>;
// A layer's gradient (Stage::GradientReady's number) has the parts of micro-batches 0 .. micro.
using GradientOf = std::function<void(std::int64_t micro, std::int64_t layer)>;

// Forward and backward of micro-batches 0 .. count - 1 through every stage. Returns the sum of
// losses on the last stage, 0 on the others.
double run_pipeline(Stage& stage, const Mesh& mesh, std::int64_t count,
                    const MicroBatchOf& batch_of, const GradientOf& ready);
// Forward alone, without dropout, one micro-batch after the other.
double run_forward_only(Stage& stage, const Mesh& mesh, std::int64_t count,
                        const MicroBatchOf& batch_of);

}  // namespace copus
