#include "plan/simulated_run.h"

#include <utility>

#include "copus/parallel/params.h"

namespace copus::detail {
namespace {

// What the planner is shown: steps of no machine are alike, and a verdict that finds them so takes
// them for steps that are slow together. Every other one is so much longer, the others shorter.
constexpr double kLonger = 1.0001;

}  // namespace

double after_step(const Course& course, double before, std::int64_t batch) {
  double const critical = course.noise.at(before).critical_batch;
  return before + static_cast<double>(batch * course.config.model.seq_len) *
                      useful_per_token(course.config, batch, critical);
}

CoursePlayer::CoursePlayer(const Course& course, const Configuration& first, RunPlanner* planner)
    : course_(course), planner_(planner) {
  use(first);
  run_.first = first;
}

SimulatedRun CoursePlayer::play() {
  std::int64_t const interval = course_.config.adapt.interval_steps;
  while (at_.useful_tokens < course_.goal) {
    step();
    bool const last = at_.useful_tokens >= course_.goal;
    if (at_.step % interval == 0 || last) note_step();
    if (planner_ == nullptr || last) continue;
    measure_noise();
    if (!std::exchange(fresh_, false)) {
      planner_->observe(present_, step_seconds_ * (at_.step % 2 == 0 ? kLonger : 1.0 / kLonger),
                        pace_);
      ++steps_;
    }
    if (pending_ && steps_ >= next_look_) settle();
    if (!pending_ && at_.step % interval == 0) consult();
  }
  run_.last = present_;
  run_.end = at_;
  const Hardware& hardware = course_.cluster.hardware;
  run_.mfu = mfu_of(course_.config.model, static_cast<double>(at_.tokens) / at_.seconds,
                    present_.shape.layout.world(),
                    hardware.matrix(course_.config.train.precision).peak_flops);
  return std::move(run_);
}

void CoursePlayer::use(const Configuration& to) {
  const Config& config = course_.config;
  std::int64_t const count = PlanRow{to, {}}.micro_batches();
  StepCost const cost = step_cost(config.model, to.shape, count, config.train.precision,
                                  course_.cluster, stage_sizes(config.model, to.shape.layout));
  present_ = to;
  step_seconds_ = cost.seconds(count);
  // As StepRecord::pace: not with a single micro-batch, nor with virtual stages.
  bool const measured = count > 1 && to.shape.layout.virtual_stages == 1;
  pace_ = measured ? std::optional(cost.beta) : std::nullopt;
}

void CoursePlayer::step() {
  at_.useful_tokens = after_step(course_, at_.useful_tokens, present_.batch);
  at_.tokens += present_.batch * course_.config.model.seq_len;
  at_.seconds += step_seconds_;
  ++at_.step;
}

// As GnsEstimator's readings come: every so many steps, and none that counts before the eighth.
void CoursePlayer::measure_noise() {
  if (at_.step % course_.config.gns.every_steps != 0) return;
  if (!has_estimate(present_.shape.layout.dp, PlanRow{present_, {}}.micro_batches())) return;
  NoisePoint const noise = course_.noise.at(at_.useful_tokens);
  GnsReading reading;
  reading.state = ++estimates_ < kColdEstimates ? GnsState::cold : GnsState::warm;
  reading.critical_batch = noise.critical_batch;
  reading.low = noise.low;
  reading.high = noise.high;
  reading_ = reading;
}

void CoursePlayer::note_step() {
  const Config& config = course_.config;
  double const speed = static_cast<double>(present_.batch * config.model.seq_len) / step_seconds_;
  double const peak = course_.cluster.hardware.matrix(config.train.precision).peak_flops;
  run_.events.emplace_back(
      SimulatedStep{at_, present_, step_seconds_, speed,
                    mfu_of(config.model, speed, present_.shape.layout.world(), peak),
                    course_.noise.at(at_.useful_tokens)});
}

void CoursePlayer::consult() {
  Decision const decision =
      planner_->decide({at_.step, at_.tokens, reading_}, present_, /*acts=*/true);
  ++run_.decisions;
  run_.events.emplace_back(SimulatedDecision{at_, decision});
  if (decision.change == Change::none) return;
  if (decision.change == Change::layout) pending_ = Pending{present_, decision.cost_seconds};
  change(decision.to, decision.cost_seconds, false);
}

void CoursePlayer::change(const Configuration& to, double booked, bool rollback) {
  double const seconds = booked > kFree ? booked : 0.0;
  const StepShape &was = present_.shape, &is = to.shape;
  bool const batch_alone = was == is;
  bool const micro_alone = !batch_alone && was.layout == is.layout && was.recompute == is.recompute;
  run_.events.emplace_back(SimulatedSwitch{at_, batch_alone ? Change::batch : Change::layout,
                                           micro_alone, rollback, present_, to, seconds});
  if (batch_alone) {
    ++run_.batch_changes;
  } else {
    ++(micro_alone ? run_.micro_changes : run_.layout_changes);
    if (present_.batch != to.batch) ++run_.batch_changes;
    planner_->changed(was, is, at_.step, booked);
    fresh_ = true;
    steps_ = 0;
    next_look_ = kFirstLook;
  }
  if (rollback) ++run_.rollbacks;
  at_.seconds += seconds;
  run_.switch_seconds += seconds;
  use(to);
}

void CoursePlayer::settle() {
  Verdict const verdict = planner_->settle(at_.step, next_look_ >= kLastLook);
  if (verdict.ruling == Ruling::wait) {
    next_look_ *= 2;
    return;
  }
  run_.events.emplace_back(SimulatedVerdict{at_, verdict});
  Pending const pending = *std::exchange(pending_, std::nullopt);
  if (verdict.ruling == Ruling::roll_back) change(pending.before, pending.seconds, true);
}

}  // namespace copus::detail
