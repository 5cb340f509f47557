// What a planner has learned, as the JSON text that checkpoints and metrics carry.
#pragma once
#include <string>

#include "copus/plan/run_planner.h"

namespace copus {

// All of it but the wish that awaits a second decision.
std::string memory_text(const PlannerMemory& memory);
// Throws ConfigError (what is missing, or a value that no run can have written), `name` first.
PlannerMemory parse_memory(const std::string& text, const std::string& name);

}  // namespace copus
