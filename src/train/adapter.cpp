#include "train/adapter.h"

#include <algorithm>
#include <utility>

#include "copus/comm/broadcast.h"
#include "copus/core/config_io.h"
#include "copus/parallel/params.h"

namespace copus {
namespace {

// The candidates' free keys are the configuration's own, with what a run settles at its start.
Config planning_config(const Config& config, Recompute recompute) {
  Config out = config;
  out.parallel.recompute = recompute;
  if (out.batch.min == 0) out.batch.min = out.batch.sequences;
  if (out.batch.max == 0) out.batch.max = std::max(out.batch.min, out.batch.sequences);
  return out;
}

// Keys that do nothing make two names for one layout.
bool is_plain(const Layout& layout) {
  return (layout.pp > 1 || layout.virtual_stages == 1) &&
         (layout.tp > 1 || !layout.sequence_parallel);
}

double initial_switch_seconds(const Config& config, const Cluster& cluster) {
  // All of the state once over the slowest link: what a switch at worst moves.
  double const bytes = 12.0 * static_cast<double>(parameter_count(config.model));
  const Hardware& hardware = cluster.hardware;
  double const link =
      cluster.nodes > 1 ? hardware.between.bytes_per_second : hardware.inside.bytes_per_second;
  return bytes / std::max(1.0, link);
}

RunPlan plan_of(const Configuration& configuration) {
  return {configuration.shape.layout, configuration.shape.micro, configuration.batch};
}

}  // namespace

Adapter::Adapter(const Config& config, const Cluster& cluster, Communicator& world,
                 const RunPlan& first)
    : config_(planning_config(config, config.parallel.recompute.value_or(Recompute::none))),
      cluster_(cluster),
      world_(world),
      recompute_(config.parallel.recompute.value_or(Recompute::none)),
      rules_(rules_of(config_)),
      switch_seconds_(initial_switch_seconds(config_, cluster_)) {
  if (world_.rank() != 0) return;
  for (PlanRow& row : table_of(candidates_of(config_, cluster_, world_.size()))) {
    // The batches of a schedule come whatever is chosen.
    bool const lasts = std::all_of(
        config_.batch.schedule.begin(), config_.batch.schedule.end(), [&](const BatchStep& step) {
          const StepShape& shape = row.configuration.shape;
          return illegal_reasons(config_.model, shape.layout, step.sequences, shape.micro).empty();
        });
    if (!lasts) continue;
    // A single micro-batch in all would leave the run without a noise scale to go on by.
    bool const sees = has_estimate(row.configuration.shape.layout.dp, row.micro_batches());
    if (sees && is_plain(row.configuration.shape.layout)) table_.push_back(std::move(row));
  }
  row_of(first, first.batch.value_or(config.batch.sequences));
}

StepShape Adapter::shape_of(const RunPlan& plan) const {
  return {plan.layout, plan.micro, recompute_};
}

const StepLine& Adapter::line_of(const RunPlan& plan, std::int64_t batch) {
  if (priced_ && priced_->plan == plan && priced_->batch == batch) return priced_->line;
  StepCost const cost =
      step_cost(config_.model, shape_of(plan), batch / (plan.layout.dp * plan.micro),
                config_.train.precision, cluster_, stage_sizes(config_.model, plan.layout));
  priced_ = Priced{plan, batch, {cost.alpha, cost.beta}};
  return priced_->line;
}

// The present configuration is always one of the table's, also one that the planner would not have
// thought of.
const PlanRow& Adapter::row_of(const RunPlan& plan, std::int64_t batch) {
  Configuration const present{shape_of(plan), batch};
  auto const found = std::find_if(table_.begin(), table_.end(),
                                  [&](const PlanRow& row) { return row.configuration == present; });
  if (found != table_.end()) return *found;
  table_.push_back({present, line_of(plan, batch)});
  return table_.back();
}

std::optional<double> Adapter::predicted_seconds(const RunPlan& plan, std::int64_t batch) {
  if (world_.rank() != 0) return {};
  std::int64_t const micro_batches = batch / (plan.layout.dp * plan.micro);
  LivePrice const known = price(live_, shape_of(plan), line_of(plan, batch), micro_batches);
  return known.line.seconds(micro_batches);
}

void Adapter::observe(const StepRecord& record, const RunPlan& plan) {
  if (world_.rank() != 0) return;
  copus::observe(live_, shape_of(plan), line_of(plan, record.batch),
                 record.batch / (plan.layout.dp * plan.micro), record.seconds, {});
}

bool Adapter::due(std::int64_t step) const {
  return step % config_.adapt.interval_steps == 0 && !awaits_verdict();
}

Situation Adapter::situation_of(const Counters& now, const std::optional<GnsReading>& noise,
                                const RunPlan& plan, std::int64_t batch) const {
  Situation s;
  s.present = {shape_of(plan), batch};
  if (noise && noise->state == GnsState::warm && noise->critical_batch && noise->low &&
      noise->high) {
    s.noise = {*noise->critical_batch, *noise->low, *noise->high, true};
  }
  s.step = now.step;
  s.warming_up = now.tokens < config_.schedule.warmup_tokens;
  auto const left = static_cast<double>(config_.train.tokens - now.tokens);
  s.horizon_tokens = config_.adapt.horizon_tokens > 0
                         ? std::min(left, static_cast<double>(config_.adapt.horizon_tokens))
                         : left;
  s.switch_seconds = switch_seconds_;
  s.sequence_tokens = config_.model.seq_len;
  return s;
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
  if (world_.rank() == 0) {
    row_of(plan, batch);
    // A written schedule of batches is the user's: the planner then chooses the layout alone.
    PlanTable scheduled;
    if (!config_.batch.schedule.empty()) {
      std::copy_if(table_.begin(), table_.end(), std::back_inserter(scheduled),
                   [&](const PlanRow& row) { return row.configuration.batch == batch; });
    }
    Decision const decision = copus::decide(scheduled.empty() ? table_ : scheduled, live_, rules_,
                                            situation_of(now, noise, plan, batch), state_);
    outcome.decision = decision;
    bool const acts = config_.adapt.mode == AdaptMode::act && config_.adapt.script.empty();
    if (acts && decision.change != Change::none) {
      wanted = plan_of(decision.to);
      if (!config_.batch.schedule.empty()) wanted->batch = plan.batch;
    }
  }
  outcome.change = share(wanted);
  if (!outcome.change) return outcome;
  bool const layout_changes =
      outcome.change->layout != plan.layout || outcome.change->micro != plan.micro;
  if (layout_changes) last_ = Last{outcome.decision.value_or(Decision{}), plan};
  note_change(state_, now.step);
  return outcome;
}

void Adapter::changed(std::int64_t step, double seconds) {
  switch_seconds_ = seconds;
  note_change(state_, step);
}

Adapter::Settled Adapter::settle(std::int64_t step, double speed) {
  Settled out;
  std::optional<RunPlan> back;
  if (world_.rank() == 0) {
    Verdict const verdict = verify(last_->decision, speed);
    out.reason = verdict.reason;
    out.predicted_speed = last_->decision.predicted_speed;
    if (!verdict.kept) back = last_->before;
  }
  last_.reset();
  out.back = share(back);
  if (out.back) note_change(state_, step);
  return out;
}

}  // namespace copus
