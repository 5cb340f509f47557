// One suite for every transport: sums of small integers, so that every result is exact.
#pragma once
#include "copus/backend/backend.h"
#include "copus/comm/communicator.h"

namespace copus::test {

// Runs all checks on this rank of `world`, with tensors in `memory`'s; throws std::runtime_error
// naming the first that fails. Every rank calls it.
void check_communicator(Communicator& world, Backend& memory);

}  // namespace copus::test
