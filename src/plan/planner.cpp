#include "copus/plan/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "copus/core/config_io.h"
#include "plan/weighing.h"

namespace copus {
namespace {

using detail::Option;
using detail::Weighing;

std::string percent(double ratio) {
  return fmt::format("{:+.1f} %", 100.0 * (ratio - 1.0));
}

// Whether `option` is taken, and the numbers that say so or not.
struct Judgement {
  bool act = false;
  double probability = 0.0;
  std::string why;
};

Judgement judge_batch(const Weighing& weighing, const Option& option, const PlannerRules& rules) {
  Judgement out;
  out.probability =
      weighing.probability(option, rules.margin, Weighing::Doubt::noise_and_prediction);
  out.act = out.probability > rules.confidence;
  out.why = fmt::format("a gain above {:.0f} % has probability {:.2f} ({:.2f} needed)",
                        100.0 * rules.margin, out.probability, rules.confidence);
  return out;
}

Judgement judge_layout(const Weighing& weighing, const Option& option, const PlannerRules& rules) {
  Judgement out;
  // What has run was left for something better: without a margin the two would take turns.
  double const gain = option.price.measured ? rules.margin : 0.0;
  out.probability = weighing.probability(option, gain, Weighing::Doubt::noise_and_prediction);
  double const by_noise = weighing.probability(option, gain, Weighing::Doubt::noise);
  double const saved = weighing.saved_seconds(option);
  double const needed = option.cost_seconds * (1.0 + rules.margin);
  out.act =
      out.probability > rules.layout_confidence && by_noise > rules.confidence && saved > needed;
  out.why = fmt::format(
      "a gain above {:.0f} % has probability {:.2f} ({:.2f} needed), {:.2f} by the noise scale "
      "alone "
      "({:.2f} needed), and saves {:.4g} s over the horizon ({:.4g} s needed)",
      100.0 * gain, out.probability, rules.layout_confidence, by_noise, rules.confidence, saved,
      needed);
  return out;
}

Judgement judge(const Weighing& weighing, const Option& option, const PlannerRules& rules) {
  return option.change == Change::layout ? judge_layout(weighing, option, rules)
                                         : judge_batch(weighing, option, rules);
}

std::string noise_text(const Situation& now, const PlannerRules& rules) {
  if (!detail::usable(now.noise)) {
    return fmt::format("the noise scale is unresolved{}{}{}, so the batch stays",
                       now.noise.why.empty() ? "" : " (", now.noise.why,
                       now.noise.why.empty() ? "" : ")");
  }
  return fmt::format("critical batch {:.4g} ({:.4g} to {:.4g})",
                     rules.calibration * now.noise.critical_batch,
                     rules.calibration * now.noise.low, rules.calibration * now.noise.high);
}

// "", or what is not considered because it was refused or rolled back.
std::string held_text(const PlannerState& state, const Situation& now) {
  std::string text;
  for (const HeldBack& held : state.held) {
    if (held.until_step <= now.step) continue;
    text += fmt::format(
        "; {}{} is held back until step {} (refused or rolled back {})", to_string(held.layout),
        held.micro > 0 ? fmt::format(", micro-batch {}", held.micro) : "", held.until_step,
        held.failures == 1 ? "once" : fmt::format("{} times", held.failures));
  }
  return text;
}

void fill(Decision& out, const Weighing& weighing, const Option& option,
          const PlannerRules& rules) {
  out.to = option.row->configuration;
  out.change = option.change;
  out.predicted = option.worth;
  out.predicted_speed = option.speed;
  out.error = weighing.error_between(option);
  out.cost_seconds = option.cost_seconds;
  out.crossing = crossing(rules.objective, weighing.present().rate(), option.rate());
}

Decision staying(const Weighing& weighing, const Situation& now) {
  const Option& present = weighing.present();
  Decision out;
  out.from = out.to = now.present;
  out.current = out.predicted = present.worth;
  out.current_speed = out.predicted_speed = present.speed;
  out.error = present.price.error();
  out.critical_batch = weighing.phi();
  return out;
}

// A decision wants what the one before it wanted: the same layout, the batch on the same side.
bool same_wish(const std::optional<Configuration>& before, const Configuration& wanted,
               const Configuration& present) {
  return before && before->shape.layout == wanted.shape.layout &&
         (before->batch > present.batch) == (wanted.batch > present.batch) &&
         (before->batch < present.batch) == (wanted.batch < present.batch);
}

std::string text_of(const Weighing& weighing, const Option& option, const PlannerRules& rules,
                    const Situation& now) {
  return fmt::format("{} is worth {} under {} goodput{} {}", to_string(option.row->configuration),
                     percent(option.worth / weighing.present().worth), name_of(rules.objective),
                     detail::usable(now.noise) ? " at" : ";", noise_text(now, rules));
}

void note_runner_up(Decision& out, const Option& option) {
  out.runner_up = option.row->configuration;
  out.runner_up_goodput = option.worth;
  out.runner_up_speed = option.speed;
}

// The first of the best options that passes; else why the best one does not.
Decision choose(const Weighing& weighing, const PlannerRules& rules, const Situation& now,
                PlannerState& state) {
  Decision out = staying(weighing, now);
  std::vector<Option> const options = weighing.best();
  std::optional<Configuration> const wanted_before = state.wanted;
  state.wanted.reset();
  std::string shortfall;
  for (std::size_t i = 0; i < options.size() && options[i].effective > out.current; ++i) {
    const Option& option = options[i];
    Judgement const judgement = judge(weighing, option, rules);
    std::string const what = text_of(weighing, option, rules, now);
    if (i == 0) {
      out.probability = judgement.probability;
      shortfall = fmt::format("hold: {}, but {}", what, judgement.why);
    }
    if (!judgement.act) continue;
    state.wanted = option.row->configuration;
    out.probability = judgement.probability;
    out.reason = fmt::format("{}; {}", what, judgement.why);
    if (same_wish(wanted_before, *state.wanted, now.present)) {
      fill(out, weighing, option, rules);
      std::size_t const other = i == 0 ? 1 : 0;
      if (other < options.size()) note_runner_up(out, options[other]);
    } else {
      out.reason = "hold, to see it once more: " + out.reason;
      note_runner_up(out, option);
    }
    return out;
  }
  out.reason = !shortfall.empty()
                   ? shortfall
                   : fmt::format("hold: nothing within reach is worth more under {} goodput; {}",
                                 name_of(rules.objective), noise_text(now, rules));
  out.reason += held_text(state, now);
  if (!options.empty()) {
    note_runner_up(out, options[0]);
    out.crossing = crossing(rules.objective, weighing.present().rate(), options[0].rate());
  }
  return out;
}

}  // namespace

NoiseScale noise_of(const std::optional<GnsReading>& reading) {
  if (!reading) return {.why = "not measured yet"};
  const GnsReading& r = *reading;
  if (r.state == GnsState::warm && r.critical_batch && r.low && r.high) {
    return {*r.critical_batch, *r.low, *r.high, true};
  }
  if (r.state == GnsState::cold) return {.why = "too few estimates so far"};
  return {.why = r.reason};
}

std::string to_string(const Configuration& configuration) {
  return fmt::format("batch {} ({}, micro-batch {}{})", configuration.batch,
                     to_string(configuration.shape.layout), configuration.shape.micro,
                     configuration.shape.recompute == Recompute::none
                         ? ""
                         : fmt::format(", recompute {}", name_of(configuration.shape.recompute)));
}

PlanTable table_of(const std::vector<Candidate>& candidates) {
  PlanTable table;
  for (const Candidate& candidate : candidates) {
    if (!candidate.feasible) continue;
    table.push_back(
        {{candidate.shape, candidate.batch}, {candidate.cost.alpha, candidate.cost.beta}});
  }
  return table;
}

PlannerRules rules_of(const Config& config) {
  PlannerRules rules;
  rules.objective = config.adapt.objective;
  rules.calibration = config.adapt.calibration;
  rules.margin = config.adapt.margin;
  rules.confidence = config.gns.confidence;
  rules.min_dwell_steps = config.adapt.min_dwell_steps;
  rules.interval_steps = config.adapt.interval_steps;
  return rules;
}

Decision decide(const PlanTable& table, const LiveCosts& live, const PlannerRules& rules,
                const Situation& situation, PlannerState& state) {
  Weighing const weighing(table, live, rules, situation, state.held);
  std::int64_t const since = situation.step - state.last_change_step;
  bool const dwelling = state.last_change_step > 0 && since < rules.min_dwell_steps;
  if (!situation.warming_up && !dwelling) return choose(weighing, rules, situation, state);
  Decision out = staying(weighing, situation);
  out.reason = situation.warming_up ? "hold: the learning rate is warming up"
                                    : fmt::format("hold: {} of {} steps since the last change",
                                                  since, rules.min_dwell_steps);
  state.wanted.reset();
  return out;
}

void note_change(PlannerState& state, std::int64_t step) {
  state.last_change_step = step;
  state.wanted.reset();
}

void note_failure(PlannerState& state, const PlannerRules& rules, const Layout& layout,
                  std::int64_t micro, std::int64_t step) {
  HeldBack const key{layout, micro, 0, 0};
  auto held = std::find_if(state.held.begin(), state.held.end(), [&](const HeldBack& h) {
    return h.layout == key.layout && h.micro == key.micro;
  });
  if (held == state.held.end()) held = state.held.insert(held, key);
  constexpr std::int64_t kMostDoublings = 20;
  held->failures += 1;
  std::int64_t const wait = std::max(rules.min_dwell_steps, rules.interval_steps);
  held->until_step = step + (wait << std::min(held->failures, kMostDoublings));
}

}  // namespace copus
