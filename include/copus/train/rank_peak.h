// What a rank's device is held against: its matrix peak, and its memory.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "copus/backend/backend.h"
#include "copus/comm/rank_device.h"
#include "copus/core/config.h"

namespace copus {

// The peak that the vendor lists for a GPU; none on the CPU, and for GPUs that
// plan/hardware.h does not know.
std::optional<double> listed_peak_flops(const RankDevice& device, Precision precision);
// That, or what the device is measured to reach (a moment of computing).
double rank_peak_flops(const RankDevice& device, Backend& backend, Precision precision);

// On a CPU in bf16: that its bf16 products are slower than its fp32 ones, and what to do; else "".
// `bf16_flops`: what rank_peak_flops gave. Another moment of computing; all ranks at once.
std::string slow_bf16_words(const RankDevice& device, Backend& backend, const Config& config,
                            double bf16_flops);

// This rank's share of the memory that its tensors live in.
std::int64_t rank_memory_bytes(const RankDevice& device, Backend& backend);

}  // namespace copus
