// What a change of layout costs, measured on a training state whose moments are not zero.
#pragma once
#include <cstdint>
#include <vector>

#include "copus/backend/backend.h"
#include "copus/comm/communicator.h"
#include "copus/core/config.h"
#include "copus/train/switch.h"

namespace copus {

// From one layout of a ring to the next. Times are medians over the rounds, each that of the
// slowest rank.
struct SwitchLeg {
  Layout from, to;
  std::int64_t micro_from = 0, micro_to = 0;
  double step_before = 0.0, step_after = 0.0;  // seconds of a step in either layout
  double seconds[kSwitchPhases] = {};
  double total_seconds = 0.0;
  std::int64_t bytes_moved = 0, bytes_local = 0;  // of all ranks
  std::int64_t peak_bytes = 0;                    // of the rank that holds most
  bool in_place = true;                           // on every rank, in every round

  // Bytes a second of the exchange phase, which copies what stays on its rank too.
  double moved_rate() const;
  double copied_rate() const;  // with what stays
};

struct SwitchBench {
  // Bytes a second that all ranks together send when each sends 64 MiB to the next: what the
  // transport can do.
  double exchange_bandwidth = 0.0;
  std::vector<SwitchLeg> legs;
};

// A step in each layout of `ring`, a switch to the next, and from the last to the first; `rounds`
// times after one that is not counted. `free_bytes`: SwitchRequest's. A switch that is refused is a
// std::runtime_error with the reason. Every rank of the world calls it.
SwitchBench bench_switch(const Config& config, Communicator& world, const std::vector<Layout>& ring,
                         Backend& backend, int rounds, std::int64_t free_bytes);

}  // namespace copus
