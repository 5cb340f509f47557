// What this device reaches at its two limits, measured: the yardsticks of MFU and of `copus bench`.
#pragma once
#include "copus/backend/backend.h"

namespace copus {

// FLOP/s of the best of several matrix products of 1536 x 1536 x 1536, f32: large enough to be
// bound by arithmetic, small enough to take milliseconds.
double measured_peak_flops(Backend& backend);
// Bytes/s of the best of several out = a + b over buffers of 64 MiB, counting two reads and one
// write.
double measured_bandwidth(Backend& backend);

}  // namespace copus
