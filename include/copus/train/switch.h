// The change of a running trainer to another layout, as it is asked for and as it went.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "copus/parallel/layout.h"

namespace copus {

// In this order. Until swap the old layout could go on as if nothing had been.
enum class SwitchPhase : std::uint8_t { plan, mesh, allocate, exchange, verify, swap };
inline constexpr int kSwitchPhases = 6;
const char* name_of(SwitchPhase phase);

struct SwitchRequest {
  Layout layout;
  std::int64_t micro = 1;
  // The memory that this rank may take beyond what it has; negative: it is not asked.
  std::int64_t free_bytes = -1;
  // Called by every rank as each phase begins (exchange: in its middle). What it throws before swap
  // is a failure of that phase: a test's way in.
  std::function<void(SwitchPhase)> on_phase;
};

struct SwitchRecord {
  Layout from, to;
  std::int64_t micro_from = 0, micro_to = 0;
  std::string refused;  // not empty: why nothing has changed, the same on every rank
  double seconds[kSwitchPhases] = {};
  double total_seconds = 0.0;
  // Of all ranks together.
  std::int64_t bytes_moved = 0, bytes_local = 0;
  std::uint64_t state_hash = 0;
  // Of this rank: both states, what else lives meanwhile, and the staging of the exchange.
  std::int64_t peak_bytes = 0;
  bool in_place = true;  // this rank's new arena lies in the old one's buffer
};

}  // namespace copus
