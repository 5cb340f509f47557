#include "train/adapter.h"

#include <utility>

#include "copus/comm/broadcast.h"

namespace copus {
namespace {

RunPlan plan_of(const Configuration& configuration) {
  return {configuration.shape.layout, configuration.shape.micro, configuration.batch};
}

}  // namespace

Adapter::Adapter(const Config& config, const Cluster& cluster, Communicator& world,
                 const RunPlan& first, PlannerMemory memory)
    : config_(config), world_(world) {
  if (world_.rank() != 0) return;
  planner_.emplace(config, cluster, world.size(),
                   configuration_of(first, first.batch.value_or(config.batch.sequences)),
                   std::move(memory));
}

Configuration Adapter::configuration_of(const RunPlan& plan, std::int64_t batch) const {
  Recompute const recompute = config_.parallel.recompute.value_or(Recompute::none);
  return {{plan.layout, plan.micro, recompute}, batch};
}

std::optional<double> Adapter::predicted_seconds(const RunPlan& plan, std::int64_t batch) {
  if (!planner_) return {};
  return planner_->predicted_seconds(configuration_of(plan, batch));
}

void Adapter::observe(const StepRecord& record, const RunPlan& plan) {
  ++steps_;
  if (planner_)
    planner_->observe(configuration_of(plan, record.batch), record.seconds, record.pace);
}

bool Adapter::due(std::int64_t step) const {
  return step % config_.adapt.interval_steps == 0 && !awaits_verdict();
}

// Rank 0's, to everybody.
std::optional<RunPlan> Adapter::share(std::optional<RunPlan> change) {
  ChosenPlan chosen = change ? chosen_plan(*change) : ChosenPlan{};
  broadcast_value(world_, chosen, 0);
  if (chosen.dp == 0) return {};
  return run_plan(chosen);
}

Adapter::Outcome Adapter::decide(const Counters& now, const std::optional<GnsReading>& noise,
                                 const RunPlan& plan, std::int64_t batch) {
  Outcome outcome;
  std::optional<RunPlan> wanted;
  if (planner_) {
    bool const acts = config_.adapt.mode == AdaptMode::act && config_.adapt.script.empty();
    Decision const decision =
        planner_->decide({now.step, now.tokens, noise}, configuration_of(plan, batch), acts);
    outcome.decision = decision;
    if (acts && decision.change != Change::none) {
      wanted = plan_of(decision.to);
      if (!config_.batch.schedule.empty()) wanted->batch = plan.batch;
    }
  }
  outcome.change = share(wanted);
  if (!outcome.change) return outcome;
  bool const layout_changes =
      outcome.change->layout != plan.layout || outcome.change->micro != plan.micro;
  if (layout_changes) before_ = plan;
  return outcome;
}

CheckFinding Adapter::learn(const Check& check, const std::optional<GnsReading>& noise) {
  return planner_->learn(check, noise);
}

void Adapter::changed(const RunPlan& from, const RunPlan& to, std::int64_t step, double seconds) {
  steps_ = 0;
  next_look_ = kFirstLook;
  if (!planner_) return;
  planner_->changed(configuration_of(from, 0).shape, configuration_of(to, 0).shape, step, seconds);
}

void Adapter::refused(const RunPlan& to, std::int64_t step) {
  before_.reset();
  if (planner_) planner_->refused(configuration_of(to, 0).shape, step);
}

std::optional<Adapter::Settled> Adapter::settle(std::int64_t step) {
  Settled out;
  auto ruling = static_cast<std::int32_t>(Ruling::keep);
  if (planner_) {
    out.verdict = planner_->settle(step, next_look_ >= kLastLook);
    ruling = static_cast<std::int32_t>(out.verdict->ruling);
  }
  broadcast_value(world_, ruling, 0);
  if (ruling == static_cast<std::int32_t>(Ruling::wait)) {
    next_look_ *= 2;
    return {};
  }
  if (ruling == static_cast<std::int32_t>(Ruling::roll_back)) out.back = before_;
  before_.reset();
  return out;
}

}  // namespace copus
