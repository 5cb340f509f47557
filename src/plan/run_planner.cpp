#include "copus/plan/run_planner.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "copus/core/config_io.h"
#include "copus/parallel/params.h"

namespace copus {
namespace {

// The candidates' free keys are the configuration's own, with what a run settles at its start.
Config planning_config(const Config& config) {
  Config out = config;
  out.parallel.recompute = config.parallel.recompute.value_or(Recompute::none);
  if (out.batch.min == 0) out.batch.min = out.batch.sequences;
  if (out.batch.max == 0) out.batch.max = std::max(out.batch.min, out.batch.sequences);
  return out;
}

// The batches of a schedule come whatever is chosen.
bool takes_schedule(const Config& config, const StepShape& shape) {
  return std::all_of(
      config.batch.schedule.begin(), config.batch.schedule.end(), [&](const BatchStep& step) {
        return illegal_reasons(config.model, shape.layout, step.sequences, shape.micro).empty();
      });
}

constexpr double kStateBytes = 12.0;  // master and both moments of a parameter, in fp32

// A rank's own state, read and written once.
double guessed_micro_seconds(const Config& config, const Cluster& cluster, const Layout& layout) {
  double const bytes = kStateBytes * static_cast<double>(parameter_count(config.model)) /
                       static_cast<double>(layout.tp * layout.pp);
  return 2.0 * bytes / std::max(1.0, cluster.hardware.memory_bytes_per_second);
}

}  // namespace

// All of the state once over the slowest link.
double guessed_switch_seconds(const Config& config, const Cluster& cluster) {
  const Hardware& hardware = cluster.hardware;
  double const link =
      cluster.nodes > 1 ? hardware.between.bytes_per_second : hardware.inside.bytes_per_second;
  return kStateBytes * static_cast<double>(parameter_count(config.model)) / std::max(1.0, link);
}

PlanTable planned_rows(const Config& given, const Cluster& cluster, int world) {
  Config const config = planning_config(given);
  PlanTable rows;
  for (PlanRow& row : table_of(candidates_of(config, cluster, world, CandidateUse::run))) {
    const StepShape& shape = row.configuration.shape;
    // A single micro-batch in all would leave the run without a noise scale to go on by.
    bool const sees = has_estimate(shape.layout.dp, row.micro_batches());
    if (sees && takes_schedule(config, shape)) rows.push_back(std::move(row));
  }
  return rows;
}

RunPlanner::RunPlanner(const Config& config, const Cluster& cluster, int world,
                       const Configuration& present, PlannerMemory memory)
    : config_(planning_config(config)),
      cluster_(cluster),
      rules_(rules_of(config_)),
      table_(planned_rows(config, cluster, world)),
      memory_(std::move(memory)) {
  memory_.live = aged(std::move(memory_.live));
  row_of(present);
}

StepShape RunPlanner::shape(const Layout& layout, std::int64_t micro) const {
  return {layout, micro, *config_.parallel.recompute};
}

const StepLine& RunPlanner::line_of(const Configuration& present) {
  if (priced_ && priced_->configuration == present) return priced_->line;
  const StepShape& shape = present.shape;
  StepCost const cost =
      step_cost(config_.model, shape, present.batch / (shape.layout.dp * shape.micro),
                config_.train.precision, cluster_, stage_sizes(config_.model, shape.layout));
  priced_ = Priced{present, {cost.alpha, cost.beta}};
  return priced_->line;
}

// The present configuration is always one of the table's, also one that the planner would not have
// thought of.
const PlanRow& RunPlanner::row_of(const Configuration& present) {
  auto const found = std::find_if(table_.begin(), table_.end(),
                                  [&](const PlanRow& row) { return row.configuration == present; });
  if (found != table_.end()) return *found;
  table_.push_back({present, line_of(present)});
  return table_.back();
}

LivePrice RunPlanner::priced(const Configuration& present) {
  return price(memory_.live, present.shape, line_of(present), PlanRow{present, {}}.micro_batches());
}

double RunPlanner::predicted_seconds(const Configuration& present) {
  return std::exp(recent_) * priced(present).line.seconds(PlanRow{present, {}}.micro_batches());
}

void RunPlanner::observe(const Configuration& present, double seconds, std::optional<double> pace) {
  constexpr std::size_t kRecent = kLastLook;
  // Slow steps come in runs where others use the machine: over 25 recorded runs on a shared one
  // this share left a third less error than the level's own (docs/benchmarks/worth.md). A larger
  // one leaves less still there, and on a quiet machine repeats each step's own scatter. A pause
  // counts as little.
  constexpr double kShare = 1.0 / 3, kPull = 0.2;
  std::int64_t const count = PlanRow{present, {}}.micro_batches();
  if (LivePrice const price = priced(present); price.measured) {
    double const off = std::log(seconds / price.line.seconds(count));
    recent_ += kShare * std::clamp(off - recent_, -kPull, kPull);
  }
  copus::observe(memory_.live, present.shape, line_of(present), count, seconds, pace);
  if (!(now_.configuration == present)) now_ = {present, {}};
  now_.rates.push_back(static_cast<double>(present.batch * config_.model.seq_len) / seconds);
  if (now_.rates.size() > kRecent) now_.rates.erase(now_.rates.begin());
}

Situation RunPlanner::situation_of(const Moment& now, const Configuration& present) const {
  Situation s;
  s.present = present;
  s.noise = noise_of(now.noise);
  s.step = now.step;
  s.warming_up = now.tokens < config_.schedule.warmup_tokens;
  auto const left = static_cast<double>(config_.train.tokens - now.tokens);
  s.horizon_tokens = config_.adapt.horizon_tokens > 0
                         ? std::min(left, static_cast<double>(config_.adapt.horizon_tokens))
                         : left;
  s.noise_growth = noise_growth(memory_.trend, rules_.confidence);
  s.switch_seconds = memory_.switch_seconds > 0.0 ? memory_.switch_seconds
                                                  : guessed_switch_seconds(config_, cluster_);
  s.micro_seconds = memory_.micro_seconds > 0.0
                        ? memory_.micro_seconds
                        : guessed_micro_seconds(config_, cluster_, present.shape.layout);
  s.sequence_tokens = config_.model.seq_len;
  return s;
}

// A written schedule of batches is the user's: the planner then chooses the layout alone.
PlanTable RunPlanner::scheduled(std::int64_t batch) const {
  PlanTable rows;
  std::copy_if(table_.begin(), table_.end(), std::back_inserter(rows),
               [&](const PlanRow& row) { return row.configuration.batch == batch; });
  return rows;
}

bool RunPlanner::has_choice() const {
  return std::any_of(table_.begin(), table_.end(), [&](const PlanRow& row) {
    const Configuration &first = table_.front().configuration, &other = row.configuration;
    return !(other.shape == first.shape) ||
           (config_.batch.schedule.empty() && other.batch != first.batch);
  });
}

Decision RunPlanner::decide(const Moment& now, const Configuration& present, bool acts) {
  row_of(present);
  Situation const situation = situation_of(now, present);
  bool const learned = situation.noise.resolved && !situation.warming_up;
  if (learned) {
    note_noise(memory_.trend, static_cast<double>(now.tokens), situation.noise.critical_batch,
               half_life_tokens(config_));
  }
  PlannerRules rules = rules_;
  rules.calibration *= memory_.correction;
  Decision const decision =
      copus::decide(config_.batch.schedule.empty() ? table_ : scheduled(present.batch),
                    memory_.live, rules, situation, memory_.state);
  if (acts && decision.change != Change::none) {
    if (decision.change == Change::layout) pending_ = decision;
    change_before_ = memory_.state.last_change_step;
    note_change(memory_.state, now.step);
  }
  return decision;
}

void RunPlanner::changed(const StepShape& from, const StepShape& to, std::int64_t step,
                         double seconds) {
  bool const micro_alone = from.layout == to.layout && from.recompute == to.recompute;
  (micro_alone ? memory_.micro_seconds : memory_.switch_seconds) = seconds;
  note_change(memory_.state, step);
  before_ = std::exchange(now_, {});
}

void RunPlanner::refused(const StepShape& to, std::int64_t step) {
  // What does not fit with one micro-batch may with another.
  note_failure(memory_.state, rules_, to.layout, to.micro, step);
  // Nothing has changed, so nothing has to settle.
  if (pending_) memory_.state.last_change_step = change_before_;
  pending_.reset();
}

CheckFinding RunPlanner::learn(const Check& check, const std::optional<GnsReading>& noise) {
  return copus::learn(memory_, check, rules_, noise_of(noise));
}

Verdict RunPlanner::settle(std::int64_t step, bool last) {
  if (!pending_) return {Ruling::keep, "nothing awaits a verdict"};
  Decision const decision = *pending_;
  // Steps of another batch, as a schedule brings it, say nothing of this prediction.
  if (!(now_.configuration == decision.to)) {
    pending_.reset();
    return {Ruling::keep, "kept without a verdict: the batch has changed since"};
  }
  Speed const before = before_.configuration == decision.from ? speed_of(before_.rates) : Speed{};
  Verdict const verdict = verify(decision, before, speed_of(now_.rates), last);
  if (verdict.ruling == Ruling::wait) return verdict;
  pending_.reset();
  if (verdict.ruling == Ruling::roll_back) {
    note_change(memory_.state, step);
    const StepShape &left = decision.to.shape, &kept = decision.from.shape;
    note_failure(memory_.state, rules_, left.layout, left.layout == kept.layout ? left.micro : 0,
                 step);
  }
  return verdict;
}

}  // namespace copus
