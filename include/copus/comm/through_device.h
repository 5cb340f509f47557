// A communicator for tensors of the host where the ranks are connected by their devices alone: they
// pass through the devices' memory.
#pragma once
#include <memory>

#include "copus/backend/backend.h"
#include "copus/comm/communicator.h"

namespace copus {

// The ranks of `inner`, which moves tensors in `backend`'s memory, for tensors of the host. For
// what is small: each call takes as much of the device as it moves, and keeps it. `backend`
// outlives it.
std::unique_ptr<Communicator> reach_through_device(std::unique_ptr<Communicator> inner,
                                                   Backend& backend);

}  // namespace copus
