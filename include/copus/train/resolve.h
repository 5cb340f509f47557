// From what the configuration leaves open to what the run does: the layout and the micro-batch.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "copus/backend/device.h"
#include "copus/core/config.h"
#include "copus/parallel/layout.h"

namespace copus {

// "auto": tp 1, pp 1, dp whatever of the world that leaves, zero 0. Throws ConfigError when the
// layout needs more ranks than the world has, or when the model, or any batch of the schedule, does
// not fit it, or when a step's token ids do not fit this machine's memory; ranks that are left over
// stay idle.
Layout resolve_layout(const Config& config, int world);

// Why a rank cannot compute in train.precision, by key and value; empty when it can. `gpu`: the
// rank's, null where it computes on the CPU.
std::string precision_problem(const Config& config, const Gpu* gpu);

// The micro-batch that "auto" stands for: the largest divisor of every batch's share on a
// data-parallel rank with at most 4,096 tokens.
std::int64_t choose_micro(const Config& config, const Layout& layout);

}  // namespace copus
