#include "copus/train/run_plan.h"

#include <fmt/format.h>

#include "copus/core/config_io.h"
#include "copus/core/error.h"
#include "copus/train/resolve.h"

namespace copus {
namespace {

// Fills `parallel` and `batch` with what the entry says, the rest as it was.
void apply(const ScriptedSwitch& entry, Config& config) {
  if (entry.batch) {
    config.batch.sequences = *entry.batch;
    config.batch.schedule.clear();
  }
  if (entry.micro) config.batch.micro = entry.micro;
  if (entry.dp) config.parallel.dp = entry.dp;
  if (entry.tp) config.parallel.tp = entry.tp;
  if (entry.pp) config.parallel.pp = entry.pp;
  if (entry.virtual_stages) config.parallel.virtual_stages = entry.virtual_stages;
  if (entry.zero) config.parallel.zero = entry.zero;
}

}  // namespace

ChosenPlan chosen_plan(const RunPlan& plan) {
  const Layout& l = plan.layout;
  return {l.dp,       l.tp,
          l.pp,       l.virtual_stages,
          l.zero,     l.sequence_parallel ? 1 : 0,
          plan.micro, plan.batch.value_or(0)};
}

RunPlan run_plan(const ChosenPlan& c) {
  RunPlan plan{{c.dp, c.tp, c.pp, c.virtual_stages, c.zero, c.sequence_parallel != 0}, c.micro, {}};
  if (c.batch > 0) plan.batch = c.batch;
  return plan;
}

std::string plan_problem(const RunPlan& plan, const Config& config, int world) {
  if (plan.layout.world() > world)
    return fmt::format("{} needs {} ranks, there are {}", to_string(plan.layout),
                       plan.layout.world(), world);
  std::int64_t const batch = plan.batch.value_or(config.batch.sequences);
  std::int64_t const low = config.batch.min > 0 ? config.batch.min : config.batch.sequences;
  std::int64_t const high = config.batch.max > 0 ? config.batch.max : config.batch.sequences;
  if (plan.batch && (batch < low || batch > high))
    return fmt::format("batch {} is not in batch.min {} to batch.max {}", batch, low, high);
  std::vector<std::string> const reasons =
      illegal_reasons(config.model, plan.layout, batch, plan.micro);
  return reasons.empty() ? "" : reasons.front();
}

std::int64_t batch_of(const RunPlan& plan, const BatchConfig& batch, std::int64_t tokens) {
  return plan.batch.value_or(batch_at(batch, tokens));
}

Script::Script(const Config& config, const RunPlan& first, int world) {
  Config now = config;
  now.parallel.dp = first.layout.dp;
  now.parallel.tp = first.layout.tp;
  now.parallel.pp = first.layout.pp;
  std::vector<std::string> problems;
  std::optional<std::int64_t> batch = first.batch;
  for (std::size_t i = 0; i < config.adapt.script.size(); ++i) {
    const ScriptedSwitch& entry = config.adapt.script[i];
    apply(entry, now);
    if (entry.batch) batch = entry.batch;
    try {
      Layout const layout = resolve_layout(now, world);
      entries_.push_back({entry, {layout, choose_micro(now, layout), batch}});
    } catch (const ConfigError& e) {
      for (const std::string& problem : e.problems())
        problems.push_back(fmt::format("adapt.script[{}]: {}", i, problem));
    }
  }
  if (!problems.empty()) throw ConfigError(problems);
}

const RunPlan* Script::due(const Counters& now, int& overtaken) {
  const RunPlan* plan = nullptr;
  overtaken = -1;
  for (; next_ < entries_.size(); ++next_) {
    const Entry& entry = entries_[next_];
    bool const reached =
        entry.at.step ? now.step >= *entry.at.step : now.tokens >= *entry.at.tokens;
    if (!reached) break;
    plan = &entry.plan;
    ++overtaken;
  }
  return plan;
}

}  // namespace copus
