// What this device reaches at its two limits, measured: the yardsticks of MFU and of `copus bench`.
#pragma once
#include <cstdint>

#include "copus/backend/backend.h"

namespace copus {

// FLOP/s of the best of several products of f32 or bf16 matrices of 1536 x 1536, or of ones so much
// larger that a product takes milliseconds: large enough to be bound by arithmetic.
double measured_peak_flops(Backend& backend, DType type = DType::f32);
// Bytes/s of the best of several out = a + b over buffers of 64 MiB, counting two reads and one
// write.
double measured_bandwidth(Backend& backend);
// Seconds of a product so small that starting it is all it costs.
double measured_launch_seconds(Backend& backend);

// Memory that this host can still give, in bytes: what the system calls available, or what is left
// of the limit of the process's control group. The largest int64 where neither is known.
std::int64_t available_memory_bytes();

}  // namespace copus
