// What a rank's device is held against: its matrix peak, and its memory.
#pragma once
#include <cstdint>
#include <optional>

#include "copus/backend/backend.h"
#include "copus/comm/rank_device.h"
#include "copus/core/config.h"

namespace copus {

// The peak that the vendor lists for a GPU; none on the CPU, and for GPUs that
// plan/hardware.h does not know.
std::optional<double> listed_peak_flops(const RankDevice& device, Precision precision);
// That, or what the device is measured to reach (a moment of computing).
double rank_peak_flops(const RankDevice& device, Backend& backend, Precision precision);

// This rank's share of the memory that its tensors live in.
std::int64_t rank_memory_bytes(const RankDevice& device, Backend& backend);

}  // namespace copus
