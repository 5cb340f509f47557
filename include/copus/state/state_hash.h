// Fingerprints of master, m and v by logical tensor: what must be equal before and after a change
// of layout.
#pragma once
#include <cstdint>
#include <vector>

#include "copus/backend/backend.h"
#include "copus/parallel/state_shard.h"
#include "copus/state/train_state.h"

namespace copus {

// 64 bits a tensor: for parameter p of a model of P, entries p, P + p and 2 P + p are those of
// master, m and v. Each is a sum, modulo 2^64, of one hash per element of (tensor, global element,
// bits): what any ranks hold adds up to the same number, padding left out. `every_copy`: replicas
// too, or only boxes that the shard counts.
std::vector<std::uint64_t> hash_state(const ModelConfig& model, const StateShard& shard,
                                      const TrainState& state, bool every_copy, Backend& backend);

// One number for all of them.
std::uint64_t join_hashes(const std::vector<std::uint64_t>& hashes);

}  // namespace copus
