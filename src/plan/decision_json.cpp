#include "copus/plan/decision_json.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "copus/core/config_io.h"
#include "copus/plan/goodput.h"
#include "plan/layout_json.h"

namespace copus {
namespace {

using nlohmann::json;

// Where the noise scale is unresolved every batch is far below it.
json goodputs(const Decision& decision, const Configuration& configuration,
              double tokens_per_second) {
  double const phi = decision.critical_batch > 0.0 ? decision.critical_batch
                                                   : std::numeric_limits<double>::infinity();
  json out;
  for (Objective const objective : {Objective::plain, Objective::sqrt_lr, Objective::normalized}) {
    out[std::string(name_of(objective))] =
        goodput(objective, tokens_per_second, static_cast<double>(configuration.batch), phi);
  }
  return out;
}

}  // namespace

json to_json(const Configuration& configuration) {
  json out = detail::to_json(configuration.shape.layout);
  out["micro_batch"] = configuration.shape.micro;
  out["recompute"] = name_of(configuration.shape.recompute);
  out["batch"] = configuration.batch;
  return out;
}

json to_json(const Decision& decision) {
  json goodput{{"from", goodputs(decision, decision.from, decision.current_speed)},
               {"to", goodputs(decision, decision.to, decision.predicted_speed)}};
  json out{{"from", to_json(decision.from)},
           {"to", to_json(decision.to)},
           {"reason", decision.reason},
           {"predicted", decision.predicted},
           {"current", decision.current},
           {"probability", decision.probability},
           {"cost_seconds", decision.cost_seconds},
           {"predicted_tokens_per_second", decision.predicted_speed},
           {"current_tokens_per_second", decision.current_speed}};
  if (decision.critical_batch > 0.0) out["critical_batch"] = decision.critical_batch;
  if (decision.crossing) out["crossing"] = *decision.crossing;
  if (decision.runner_up) {
    out["runner_up"] = to_json(*decision.runner_up);
    out["runner_up_goodput"] = decision.runner_up_goodput;
    goodput["runner_up"] = goodputs(decision, *decision.runner_up, decision.runner_up_speed);
  }
  out["goodput"] = std::move(goodput);
  return out;
}

}  // namespace copus
