// One suite for every transport: sums of small integers, so that every result is exact.
#pragma once
#include <cstdint>
#include <vector>

#include "copus/backend/backend.h"
#include "copus/comm/communicator.h"

namespace copus::test {

// Elements of the tensors that the checks move. By default around the switch from the libraries'
// reductions to rings, and around the chunks of those.
struct Lengths {
  std::vector<std::int64_t> collective{0, 1, 3, 1000, 131071, 131072, 131073};
  std::int64_t message = 1'000'000;
};

// Runs all checks on this rank of `world`, with tensors in `memory`'s; throws std::runtime_error
// naming the first that fails. Every rank calls it.
void check_communicator(Communicator& world, Backend& memory, const Lengths& lengths = {});

}  // namespace copus::test
