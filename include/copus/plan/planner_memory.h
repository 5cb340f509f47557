// What a planner has learned in a run: plain values that a checkpoint carries, and their text.
#pragma once
#include <string>

#include "copus/plan/live_costs.h"
#include "copus/plan/noise_trend.h"
#include "copus/plan/planner.h"

namespace copus {

struct PlannerMemory {
  LiveCosts live;
  PlannerState state;
  NoiseTrend trend;
  // Of the last such change, as measured; 0: none yet.
  double switch_seconds = 0.0, micro_seconds = 0.0;
  // Of adapt.calibration, by the last branched check (plan/check.h) that found something.
  double correction = 1.0;

  bool operator==(const PlannerMemory&) const = default;
};

// JSON of all of it but the wish that awaits a second decision.
std::string memory_text(const PlannerMemory& memory);
// Throws ConfigError (what is missing, or a value that no run can have written), `name` first.
PlannerMemory parse_memory(const std::string& text, const std::string& name);

}  // namespace copus
