// A decision as metrics and simulations record it.
#pragma once
#include <nlohmann/json_fwd.hpp>

#include "copus/plan/planner.h"

namespace copus {

nlohmann::json to_json(const Configuration& configuration);
// With the goodputs of all three objectives, whichever decided: `goodput`, by `from`, `to` and
// `runner_up`, and then by objective.
nlohmann::json to_json(const Decision& decision);

}  // namespace copus
