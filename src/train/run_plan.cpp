#include "copus/train/run_plan.h"

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <type_traits>

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

namespace {

// "", or the key that the configuration gives and the plan goes against. Keys that do nothing in
// its layout are not held against it.
std::string contradiction(const RunPlan& plan, const Config& config) {
  const Layout& l = plan.layout;
  const ParallelConfig& asked = config.parallel;
  std::string found;
  auto const hold = [&](const char* key, const auto& given, std::int64_t chosen) {
    if (!found.empty() || !given || static_cast<std::int64_t>(*given) == chosen) return;
    // In the configuration's words: true and false are no numbers.
    using Value = std::decay_t<decltype(*given)>;
    found =
        fmt::format("{} is {} now, and it had chosen {}", key, *given, static_cast<Value>(chosen));
  };
  hold("parallel.dp", asked.dp, l.dp);
  hold("parallel.tp", asked.tp, l.tp);
  hold("parallel.pp", asked.pp, l.pp);
  if (l.pp > 1) hold("parallel.virtual_stages", asked.virtual_stages, l.virtual_stages);
  if (l.dp > 1) hold("parallel.zero", asked.zero, l.zero);
  if (l.tp > 1) hold("parallel.sequence_parallel", asked.sequence_parallel, l.sequence_parallel);
  hold("batch.micro", config.batch.micro, plan.micro);
  return found;
}

}  // namespace

std::string plan_problem(const RunPlan& plan, const Config& config, int world) {
  if (plan.layout.world() > world)
    return fmt::format("{} needs {} ranks, there are {}", to_string(plan.layout),
                       plan.layout.world(), world);
  std::int64_t const batch = plan.batch.value_or(config.batch.sequences);
  std::int64_t const low = config.batch.min > 0 ? config.batch.min : config.batch.sequences;
  std::int64_t const high = config.batch.max > 0 ? config.batch.max : config.batch.sequences;
  if (plan.batch && (batch < low || batch > high))
    return fmt::format("batch {} is not in batch.min {} to batch.max {}", batch, low, high);
  if (std::string against = contradiction(plan, config); !against.empty()) return against;
  std::vector<BatchStep> batches = config.batch.schedule;
  if (plan.batch || batches.empty()) batches = {{0, batch}};
  for (const BatchStep& step : batches) {
    std::vector<std::string> const reasons =
        illegal_reasons(config.model, plan.layout, step.sequences, plan.micro);
    if (!reasons.empty()) return reasons.front();
  }
  return "";
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
