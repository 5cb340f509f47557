// What `copus simulate` says: a table for people, a document for programs, and a record of each
// policy's run.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "copus/plan/simulate.h"

namespace copus {

struct SimulateReport {
  const Config& config;
  const Cluster& cluster;
  int world = 1;
  std::string noise;     // as it was asked for
  bool assumed = false;  // nobody asked for it
  const NoiseCurve& curve;
  const Simulation& simulation;
};

nlohmann::json as_json(const SimulateReport& report);
// Its text; names of files in it need not be UTF-8. `indent` as nlohmann's dump.
std::string text_of(const nlohmann::json& document, int indent);
void print_table(const SimulateReport& report);

// Lines like those of a run's metrics.jsonl: steps, and `decision`, `reshard` and `verify` events.
std::string record_of(const SimulatedRun& run);

namespace detail {
// A decision's fields but for the time, as metrics have them.
nlohmann::json acted_json(const Decision& decision);
}  // namespace detail

}  // namespace copus
