// The hardware that cluster.hardware names: a preset, a profile file, or this machine.
#pragma once
#include "copus/plan/hardware.h"

namespace copus {

// "measure" takes a few seconds: matrix products, streaming, attention and free memory of this
// machine, shared by `cluster.gpus_per_node` ranks. Throws ConfigError naming key and value.
Hardware find_hardware(const ClusterConfig& cluster, DeviceChoice device);

}  // namespace copus
