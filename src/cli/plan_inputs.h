// What `plan` and `simulate` start from: a configuration, and the cluster it is to run on.
#pragma once
#include <string>
#include <vector>

#include "copus/core/error.h"
#include "copus/plan/candidates.h"

namespace CLI {
class App;
}

namespace copus {

struct PlanFlags {
  std::string config_path;
  std::vector<std::string> set;
  int world = 0;  // 0: the cluster's
};
// CONFIG, --set and --world.
void add_plan_flags(CLI::App& command, PlanFlags& flags);

struct PlanInputs {
  Config config;
  Cluster cluster;
  int world = 0;
  std::vector<std::string> warnings;
};

// Reads the configuration as `plan` takes it, its model's sizes, and its hardware. Whatever is
// wrong is added to `problems`; the result then counts for nothing.
PlanInputs plan_inputs(const PlanFlags& flags, std::vector<std::string>& problems);

// Adds what `body` refuses to the problems found so far.
template <class Body>
void collect(std::vector<std::string>& problems, Body&& body) {
  try {
    body();
  } catch (const ConfigError& e) {
    problems.insert(problems.end(), e.problems().begin(), e.problems().end());
  }
}

}  // namespace copus
