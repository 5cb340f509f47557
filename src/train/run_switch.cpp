// How a run changes its plan between two steps, and what it says of it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "copus/core/config_io.h"
#include "copus/core/units.h"
#include "copus/plan/decision_json.h"
#include "train/run.h"

namespace copus {

nlohmann::json plan_json(const Config& config, const RunPlan& plan, std::int64_t batch) {
  Recompute const recompute = config.parallel.recompute.value_or(Recompute::none);
  return to_json(Configuration{{plan.layout, plan.micro, recompute}, batch});
}

namespace {

nlohmann::json seconds_of(const SwitchRecord& record) {
  nlohmann::json seconds{{"total", record.total_seconds}};
  for (int i = 0; i < kSwitchPhases; ++i)
    seconds[name_of(static_cast<SwitchPhase>(i))] = record.seconds[i];
  return seconds;
}

std::string phases_of(const SwitchRecord& record) {
  std::string text;
  for (int i = 0; i < kSwitchPhases; ++i) {
    text += fmt::format("{}{} {:.3f}", i > 0 ? ", " : "", name_of(static_cast<SwitchPhase>(i)),
                        record.seconds[i]);
  }
  return text;
}

// What steps were held against which prediction; nothing of it where nothing was compared.
nlohmann::json as_json(const Verdict& verdict) {
  nlohmann::json out{{"kept", verdict.ruling != Ruling::roll_back},
                     {"reason", verdict.reason},
                     {"predicted", nullptr}};
  if (verdict.after.steps == 0) return out;
  auto const interval = [](const Speed& speed) {
    // Unbounded while the steps were too few.
    bool const known = std::isfinite(speed.high);
    return known ? nlohmann::json{speed.low, speed.high} : nlohmann::json(nullptr);
  };
  auto const error = [](const Speed& speed) {
    return std::isfinite(speed.high) ? nlohmann::json(speed.error()) : nlohmann::json(nullptr);
  };
  out["predicted"] = verdict.predicted_speed;
  out["measured"] = verdict.after.median;
  out["measured_interval"] = interval(verdict.after);
  out["measured_error"] = error(verdict.after);
  out["steps"] = verdict.after.steps;
  out["before"] = verdict.before.median;
  out["before_interval"] = interval(verdict.before);
  out["before_error"] = error(verdict.before);
  return out;
}

std::string words(const RunPlan& plan, std::int64_t batch) {
  return fmt::format("{}, batch {} in micro-batches of {}", to_string(plan.layout), batch,
                     plan.micro);
}

}  // namespace

// Everything that may change the run's plan, after a step.
void Run::between_steps(const StepRecord& record) {
  bool const counts = !watch_.fresh();
  if (adapter_ && counts) adapter_->observe(record, plan_);
  if (trainer_.active()) {
    watch_.add(static_cast<double>(record.batch * config_.model.seq_len) / record.seconds,
               trainer_.mesh());
  } else {
    watch_.count();
  }
  if (adapter_ && adapter_->awaits_verdict()) {
    if (adapter_->look_due()) settle_switch();
  } else if (watch_.ready()) {
    nlohmann::json fields = watch_.result();
    fields.update({{"predicted", nullptr}, {"kept", true}});
    if (leads()) metrics_->event("verify", trainer_.state().counters, fields);
  }
  follow_script();
  if (trials_) {
    if (counts) trials_->add(record.seconds);
    if (trials_->due()) follow_trials();
    return;
  }
  if (adapter_ && adapter_->due(trainer_.state().counters.step)) consult_planner();
}

// Of a change that nobody weighs.
nlohmann::json Run::unpriced_decision(const RunPlan& to) {
  std::int64_t const tokens = trainer_.state().counters.tokens;
  return {{"from", plan_json(config_, plan_, batch_of(plan_, config_.batch, tokens))},
          {"to", plan_json(config_, to, batch_of(to, config_.batch, tokens))},
          {"predicted", nullptr},
          {"current", nullptr},
          {"probability", nullptr},
          {"cost_seconds", nullptr}};
}

void Run::follow_script() {
  const Counters& counters = trainer_.state().counters;
  int overtaken = 0;
  const RunPlan* const plan = script_.due(counters, overtaken);
  if (plan == nullptr) return;
  if (overtaken > 0) {
    log_.info(
        fmt::format("adapt.script: {} entries came due together; the last counts", overtaken + 1));
  }
  if (*plan == plan_) {
    log_.info("adapt.script: an entry is due that changes nothing here");
    return;
  }
  if (leads()) {
    nlohmann::json fields = unpriced_decision(*plan);
    fields["reason"] = "adapt.script";
    metrics_->event("decision", counters, fields);
  }
  change_to(*plan, "adapt.script");
}

// After the steps of a trial: the next one, or the fastest of all.
void Run::follow_trials() {
  const Counters& counters = trainer_.state().counters;
  while (std::optional<Trials::Outcome> const next = trials_->next()) {
    log_.info("planner: " + next->words);
    if (leads()) {
      nlohmann::json fields = unpriced_decision(next->plan);
      fields["reason"] = next->words;
      metrics_->event("decision", counters, fields);
    }
    if (!(next->plan == plan_)) change_to(next->plan, next->over ? "planner" : "trial");
    if (next->over) {
      // The fastest, or what the way back to it was refused from.
      trainer_.state().counters.plan = chosen_plan(plan_);
      trials_.reset();
      return;
    }
    if (next->plan == plan_) return;
    trials_->refused();
  }
}

// Some steps after a switch of the planner's: whether it is kept, and back where it was wrong.
void Run::settle_switch() {
  const Counters& counters = trainer_.state().counters;
  std::optional<Adapter::Settled> const settled = adapter_->settle(counters.step);
  if (!settled) return;
  nlohmann::json fields = watch_.result();
  if (settled->verdict) {
    log_.info("planner: " + settled->verdict->reason);
    fields.update(as_json(*settled->verdict));
  }
  if (leads()) metrics_->event("verify", counters, fields);
  if (settled->back) change_to(*settled->back, "rollback");
}

void Run::consult_planner() {
  const Counters& counters = trainer_.state().counters;
  std::int64_t const batch = batch_of(plan_, config_.batch, counters.tokens);
  Adapter::Outcome const outcome = adapter_->decide(counters, noise_, plan_, batch);
  if (outcome.decision) write_decision(*outcome.decision, outcome.change.has_value());
  if (outcome.change) change_to(*outcome.change, "planner");
}

void Run::write_decision(const Decision& decision, bool acts) {
  nlohmann::json fields = to_json(decision);
  fields.update({{"check_seconds", std::exchange(check_seconds_, 0.0)},
                 {"objective", name_of(config_.adapt.objective)},
                 {"acted", acts}});
  metrics_->event("decision", trainer_.state().counters, fields);
  bool const would = decision.change != Change::none && !acts;
  log_.info(fmt::format("planner: {}{}", would ? "suggests: " : "", decision.reason));
}

void Run::change_to(const RunPlan& plan, const std::string& reason) {
  const Counters& counters = trainer_.state().counters;
  std::int64_t const batch_before = batch_of(plan_, config_.batch, counters.tokens);
  std::int64_t const batch_after = batch_of(plan, config_.batch, counters.tokens);
  nlohmann::json const from = plan_json(config_, plan_, batch_before),
                       to = plan_json(config_, plan, batch_after);
  log_.info(fmt::format("{}: from {} to {}", reason, words(plan_, batch_before),
                        words(plan, batch_after)));
  // What a resumed run goes on in: neither a script's plan nor a trial is the planner's choice.
  bool const is_choice = reason != "adapt.script" && reason != "trial";
  ChosenPlan const chosen = is_choice ? chosen_plan(plan) : ChosenPlan{};
  if (plan.layout == plan_.layout && plan.micro == plan_.micro) {
    plan_ = plan;
    trainer_.state().counters.plan = chosen;
    return;
  }
  SwitchRequest request;
  request.layout = plan.layout;
  request.micro = plan.micro;
  request.free_bytes = machine_.backend.free_bytes() / machine_.device.sharing;
  SwitchRecord const record = [&] {
    PhaseMark const phase(trainer_.activity(), "changing the layout");
    return trainer_.switch_to(request);
  }();
  if (!record.refused.empty()) {
    if (adapter_) adapter_->refused(plan, counters.step);
    log_.warn(fmt::format("still in {}: {}", to_string(plan_.layout), record.refused));
    if (leads()) {
      metrics_->event("reshard", counters,
                      {{"from", from}, {"to", to}, {"refused", record.refused}});
    }
    return;
  }
  if (adapter_) adapter_->changed(plan_, plan, counters.step, record.total_seconds);
  plan_ = plan;
  trainer_.state().counters.plan = chosen;
  watch_.switched();
  progress_->use_peak(machine_.peak_of(plan_.layout));
  if (!leads()) return;
  log_.info(fmt::format("switched in {:.3f} s ({}): {} moved, {} copied, peak of this rank {}",
                        record.total_seconds, phases_of(record),
                        human_bytes(static_cast<double>(record.bytes_moved)),
                        human_bytes(static_cast<double>(record.bytes_local)),
                        human_bytes(static_cast<double>(record.peak_bytes))));
  metrics_->event("reshard", counters,
                  {{"from", from},
                   {"to", to},
                   {"seconds", seconds_of(record)},
                   {"bytes_moved", record.bytes_moved},
                   {"bytes_local", record.bytes_local},
                   {"peak_bytes", record.peak_bytes},
                   {"in_place", record.in_place},
                   {"state_hash", fmt::format("{:016x}", record.state_hash)}});
}

}  // namespace copus
