// What a run is to do in its next steps, of all that may change while it runs; and the changes that
// the user wrote down.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "copus/core/config.h"
#include "copus/parallel/layout.h"
#include "copus/state/train_state.h"

namespace copus {

struct RunPlan {
  Layout layout;
  std::int64_t micro = 1;
  std::optional<std::int64_t> batch;  // none: as batch.sequences and batch.schedule say

  bool operator==(const RunPlan&) const = default;
};

// As a checkpoint keeps what the planner chose, and back.
ChosenPlan chosen_plan(const RunPlan& plan);
RunPlan run_plan(const ChosenPlan& chosen);
// What stands in the way of going on with it, or "": the world, the model, keys that are given,
// batch.min and batch.max, the schedule's batches.
std::string plan_problem(const RunPlan& plan, const Config& config, int world);

// The global batch of a step that begins with these tokens consumed.
std::int64_t batch_of(const RunPlan& plan, const BatchConfig& batch, std::int64_t tokens);

// The plans of adapt.script, each with all its keys filled in: what an entry leaves out stays as it
// was (a micro-batch left to "auto" is chosen anew).
class Script {
 public:
  // Throws ConfigError for entries that the model, their batch or the world (its number of ranks)
  // cannot have.
  Script(const Config& config, const RunPlan& first, int world);

  // The last of the entries that have come due by now, each once. An entry waits for those before
  // it; `overtaken` becomes how many came due with it and are not seen.
  const RunPlan* due(const Counters& now, int& overtaken);

 private:
  struct Entry {
    ScriptedSwitch at;
    RunPlan plan;
  };
  std::vector<Entry> entries_;
  std::size_t next_ = 0;
};

}  // namespace copus
