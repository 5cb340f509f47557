#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/simulate_report.h"
#include "copus/core/config_io.h"
#include "copus/plan/decision_json.h"

namespace copus {
namespace detail {

using nlohmann::json;

json acted_json(const Decision& decision) {
  json out = to_json(decision);
  out["acted"] = decision.change != Change::none;
  return out;
}

namespace {

json at_json(const RunPoint& at) {
  return {{"step", at.step},
          {"tokens", at.tokens},
          {"useful_tokens", at.useful_tokens},
          {"elapsed_seconds", at.seconds}};
}

json line_of(const SimulatedStep& step) {
  json out = at_json(step.at);
  const StepShape& shape = step.configuration.shape;
  out.update({{"batch", step.configuration.batch},
              {"micro_batch", shape.micro},
              {"dp", shape.layout.dp},
              {"tp", shape.layout.tp},
              {"pp", shape.layout.pp},
              {"seconds", step.step_seconds},
              {"tokens_per_second", step.tokens_per_second},
              {"mfu", step.mfu},
              {"gns",
               {{"critical_batch", step.noise.critical_batch},
                {"low", step.noise.low},
                {"high", step.noise.high},
                {"state", name_of(GnsState::warm)}}}});
  return out;
}

json event_of(const char* name, const RunPoint& at, const json& fields) {
  json out = at_json(at);
  out["event"] = name;
  out.update(fields);
  return out;
}

json line_of(const SimulatedDecision& event) {
  return event_of("decision", event.at, acted_json(event.decision));
}

// A batch alone moves nothing: its decision says it all.
json line_of(const SimulatedSwitch& event) {
  if (event.kind == Change::batch) return {};
  return event_of("reshard", event.at,
                  {{"from", to_json(event.from)},
                   {"to", to_json(event.to)},
                   {"rollback", event.rollback},
                   {"seconds", {{"total", event.seconds}}}});
}

json line_of(const SimulatedVerdict& event) {
  const Verdict& verdict = event.verdict;
  bool const compared = verdict.after.steps > 0;
  return event_of("verify", event.at,
                  {{"kept", verdict.ruling != Ruling::roll_back},
                   {"reason", verdict.reason},
                   {"predicted", compared ? json(verdict.predicted_speed) : json()},
                   {"measured", compared ? json(verdict.after.median) : json()}});
}

}  // namespace
}  // namespace detail

std::string record_of(const SimulatedRun& run) {
  std::string text;
  for (const SimulatedEvent& event : run.events) {
    nlohmann::json const line =
        std::visit([](const auto& one) { return detail::line_of(one); }, event);
    if (!line.is_null()) text += line.dump() + "\n";
  }
  nlohmann::json const stop =
      detail::event_of("stop", run.end, {{"reason", "the goal in useful tokens reached"}});
  return text + stop.dump() + "\n";
}

}  // namespace copus
