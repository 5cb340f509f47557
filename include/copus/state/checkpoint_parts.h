// Which rank writes which tensors of a checkpoint.
#pragma once
#include <vector>

#include "copus/parallel/params.h"
#include "copus/parallel/state_shard.h"

namespace copus {

// What goes into one model file and one optimizer file.
struct CheckpointPart {
  std::vector<int> params;  // indices into parameter_table, ascending
};

// At most `writers` parts of about the same size, as many as are worth a file of their own, at
// least one. Logical tensors that lie in one tensor of the file (GPT-2's c_attn) stay together. A
// pure function: all ranks cut alike.
std::vector<CheckpointPart> checkpoint_parts(const ModelConfig& model, int writers);

// The part's tensors whole, one behind the other, in each of three buffers: what its writer needs.
StateShard part_shard(const ModelConfig& model, const CheckpointPart& part);

}  // namespace copus
