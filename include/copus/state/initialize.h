// Weights before the first step: drawn, or read; and their fingerprint.
#pragma once
#include <cstdint>
#include <vector>

#include "copus/backend/backend.h"
#include "copus/parallel/params.h"
#include "copus/state/hf.h"

namespace copus {

// Draws this rank's share of every parameter from (seed, parameter, global element): the same bits
// whatever the layout.
void draw_weights(const std::vector<Param>& table, const FlatLayout& layout, std::uint64_t seed,
                  Backend& backend, const TensorView& weights);
// Reads this rank's share from a model on disk. A ConfigError names every tensor with a NaN or
// infinity in it.
void read_weights(const std::vector<Param>& table, const FlatLayout& layout, const HfModel& model,
                  Backend& backend, const TensorView& weights);

// 64 bits over all logical tensors held here and counted: a sum, modulo 2^64, of one hash per
// element of (parameter, global element, bits). Any split of the tensors adds up to the same
// number, padding left out.
std::uint64_t weight_hash(const std::vector<Param>& table, const FlatLayout& layout,
                          Backend& backend, const TensorView& weights);

}  // namespace copus
