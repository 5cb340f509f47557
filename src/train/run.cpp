#include "train/run.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "copus/core/config_io.h"
#include "copus/core/console.h"
#include "copus/core/error.h"
#include "copus/core/units.h"
#include "copus/parallel/activations.h"
#include "copus/train/profile.h"
#include "train/token_interval.h"

namespace copus {

Run::Run(Config config, const TrainOptions& options, RunStart start, Communicator& world,
         RunMachine machine, RunInputs inputs, Log& log)
    : config_(std::move(config)),
      options_(options),
      directory_{config_.run_dir},
      plan_(start.plan),
      script_(std::move(start.script)),
      cluster_(std::move(start.cluster)),
      world_(world),
      machine_(std::move(machine)),
      inputs_(std::move(inputs)),
      log_(log),
      trainer_(config_, *machine_.ranks, plan_.layout, plan_.micro, machine_.backend),
      writer_(config_.run_dir, tokenizer_of(*inputs_.train), config_.checkpoint.keep),
      stall_watch_(
          trainer_.activity(), [this] { return asked_to_stop(); },
          [rank = world.rank()](const std::string& words) {
            standard_error().write(fmt::format("rank {}: {}\n", rank, words));
          }) {
  if (start.trials.size() > 1) trials_.emplace(world, std::move(start.trials));
}

std::string Run::end_reason() {
  const Counters& c = trainer_.state().counters;
  if (c.skipped_in_a_row >= config_.train.max_skipped_steps) {
    return fmt::format("{} steps in a row were not finite (train.max_skipped_steps {})",
                       c.skipped_in_a_row, config_.train.max_skipped_steps);
  }
  if (c.tokens >= config_.train.tokens) return "train.tokens reached";
  std::int64_t const limit = inputs_.train->limit();
  std::int64_t const batch = batch_of(plan_, config_.batch, c.tokens);
  if (limit >= 0 && c.samples + batch > limit) {
    return fmt::format("data.epochs {} used up: {} of {} samples consumed, the next batch has {}",
                       config_.data.epochs.value_or(0), c.samples, limit, batch);
  }
  return "";
}

std::string Run::stop_words() const {
  std::string const mine = options_.stop_reason ? options_.stop_reason() : "";
  return mine.empty() ? "another rank was asked to stop" : mine;
}

void Run::warn_of_epochs(std::int64_t before) {
  std::int64_t const now = trainer_.state().counters.samples;
  if (now == 0 || before == 0) return;
  std::int64_t const epoch = inputs_.train->epoch_of(now - 1);
  if (epoch != inputs_.train->epoch_of(before - 1)) {
    log_.info(fmt::format("data: pass {} over the training data begins", epoch + 1));
  }
}

void Run::report(const StepRecord& record) {
  progress_->add(record);
  if (record.gns) noise_ = record.gns;
  if (!leads()) return;
  double const rate = static_cast<double>(record.batch * config_.model.seq_len) / record.seconds;
  metrics_->step(record, plan_.layout, rate, progress_->mfu_of(rate));
  std::string const line = progress_->line(record);
  bool const last = record.tokens >= config_.train.tokens;
  if (record.step % config_.log.every_steps == 0 || last || progress_->steps() == 1) {
    log_.info(line);
  } else {
    log_.live(line);
  }
  if (progress_->steps() == 1) {
    log_.info(fmt::format(
        "memory after the first step: {} held at most by this process, {} planned a rank",
        human_bytes(static_cast<double>(peak_memory_bytes())),
        human_bytes(static_cast<double>(trainer_.memory().total()))));
  }
  if (!record.skip_reason.empty()) {
    log_.warn(fmt::format("step {} skipped: {}; weights and moments are as before", record.step,
                          record.skip_reason));
    metrics_->event("skip", trainer_.state().counters, {{"reason", record.skip_reason}});
  }
  if (record.gns) report_noise_scale(*record.gns);
}

// In words when it has come to something new; the numbers are in metrics.jsonl.
void Run::report_noise_scale(const GnsReading& gns) {
  if (gns.double_count && !std::exchange(double_count_said_, true)) {
    log_.warn(
        "noise scale: the step's norms do not count the same parameters; its values are wrong. "
        "Please report this with config.json");
  }
  // Near the line between warm and unresolved it comes and goes.
  constexpr std::int64_t kQuiet = 100;  // steps
  std::int64_t const step = trainer_.state().counters.step;
  if (gns.state == gns_state_ || (gns_said_at_ > 0 && step - gns_said_at_ < kQuiet)) return;
  gns_state_ = gns.state;
  gns_said_at_ = step;
  if (gns.state == GnsState::warm) {
    log_.info(fmt::format("noise scale: {:.4g} sequences ({:.4g} to {:.4g})",
                          gns.critical_batch.value_or(0.0), gns.low.value_or(0.0),
                          gns.high.value_or(0.0)));
  } else {
    log_.info(fmt::format("noise scale: {}{}{}", name_of(gns.state), gns.reason.empty() ? "" : ": ",
                          gns.reason));
  }
}

void Run::evaluate() {
  const Counters& counters = trainer_.state().counters;
  if (inputs_.val->tokens() == 0 || evaluated_at_ == counters.step) return;
  evaluated_at_ = counters.step;
  PhaseMark const phase(trainer_.activity(), "evaluating");
  EvalRecord const result = trainer_.evaluate(*inputs_.val, leads() ? &log_ : nullptr,
                                              [this] { return asked_to_stop(); });
  if (result.stopped) stopping_ = true;
  if (!leads()) return;
  if (result.stopped) {
    log_.info("evaluation left unfinished: the run was asked to stop");
    return;
  }
  log_.info(fmt::format("eval at step {}: loss {:.4f}, perplexity {:.3f}, over {} tokens",
                        counters.step, result.loss, std::exp(result.loss), result.tokens));
  metrics_->event("eval", counters, {{"loss", result.loss}, {"eval_tokens", result.tokens}});
}

// Starts a checkpoint of the present state; with checkpoint.async it ends in a later step.
void Run::save(SaveMode mode) {
  PhaseMark const phase(trainer_.activity(), "saving a checkpoint");
  const Counters& counters = trainer_.state().counters;
  if (writer_.under_way()) finish_save();  // the second waits for the first
  if (saved_at_ == counters.step) return;
  if (adapter_) trainer_.state().planner = adapter_->memory();
  bool const wait = mode == SaveMode::now || !config_.checkpoint.async;
  std::string const problem = writer_.start(trainer_, wait);
  if (!problem.empty()) {
    save_failed_ = problem;
    log_.warn(fmt::format("no checkpoint at step {}: {}", counters.step, problem));
    return;
  }
  saving_step_ = counters.step;
  if (wait) finish_save();
}

void Run::finish_save() {
  PhaseMark const phase(trainer_.activity(), "saving a checkpoint");
  // A resume counts on the lines of the steps that the checkpoint holds.
  if (leads()) metrics_->sync();
  CheckpointWriter::Result const result = writer_.finish(world_);
  save_failed_ = result.problem;
  if (!result.problem.empty()) {
    log_.warn(fmt::format("no checkpoint of step {}: {}; the older ones are as they were",
                          saving_step_, result.problem));
    return;
  }
  saved_at_ = saving_step_;
  if (!leads()) return;
  for (const std::string& warning : result.saved.warnings) log_.warn(warning);
  log_.info(fmt::format("checkpoint {}: {} in {}, training stood still for {:.2f} s",
                        result.saved.directory,
                        human_bytes(static_cast<double>(result.saved.bytes)),
                        human_duration(result.seconds), result.stall_seconds));
  metrics_->event("checkpoint", trainer_.state().counters,
                  {{"path", result.saved.directory},
                   {"of_step", saving_step_},
                   {"bytes", result.saved.bytes},
                   {"seconds", result.seconds},
                   {"stall_seconds", result.stall_seconds}});
}

SampleSource Run::training_samples() const {
  return [this](std::int64_t index, std::span<std::int32_t> inputs,
                std::span<std::int32_t> targets) { inputs_.train->sample(index, inputs, targets); };
}

RunEnd Run::go() {
  start();
  const Counters& counters = trainer_.state().counters;
  TokenInterval evaluation(config_.train.eval_every_tokens, counters.tokens);
  TokenInterval checkpoint(config_.checkpoint.every_tokens, counters.tokens);
  TokenInterval check(config_.adapt.check_every_tokens, counters.tokens);
  SampleSource const samples = training_samples();
  if (std::string const words = profile_words(config_.log.profile_steps, counters.step);
      !words.empty())
    log_.info(words);
  follow_script();
  std::string reason = end_reason();
  for (; reason.empty(); reason = end_reason()) {
    std::int64_t const before = counters.samples;
    std::int64_t const batch = batch_of(plan_, config_.batch, counters.tokens);
    before_profiled(config_.log.profile_steps, counters.step + 1);
    StepRecord record =
        trainer_.step(samples, batch, {asked_to_stop(), writer_.written(), asked_to_check()});
    after_profiled(config_.log.profile_steps, counters.step, world_);
    if (adapter_) record.predicted_seconds = adapter_->predicted_seconds(plan_, batch);
    report(record);
    warn_of_epochs(before);
    stopping_ = record.stop_requested;
    if (stopping_) break;
    if (record.all_written) finish_save();
    if (evaluation.due(counters.tokens)) evaluate();
    if (stopping_) break;
    if (checkpoint.due(counters.tokens)) save(SaveMode::as_configured);
    if (counters.tokens >= config_.train.tokens) continue;
    // While the learning rate warms up, what a batch brings says little of later.
    bool const settled = counters.tokens >= config_.schedule.warmup_tokens;
    if ((check.due(counters.tokens) && settled) || record.check_requested) check_batches();
    if (stopping_) break;
    between_steps(record);
  }
  bool const failed = counters.skipped_in_a_row >= config_.train.max_skipped_steps;
  if (failed) {
    if (writer_.under_way()) finish_save();
  } else {
    if (!stopping_) evaluate();
    save(SaveMode::now);
    if (!save_failed_.empty())
      throw IoError(fmt::format("the last state could not be saved: {}", save_failed_));
  }
  if (stopping_) reason = stop_words();
  log_.info(
      fmt::format("stopped at step {}, {} tokens: {}", counters.step, counters.tokens, reason));
  if (leads()) metrics_->event("stop", counters, {{"reason", reason}});
  if (stopping_) return RunEnd::stopped;
  return failed ? RunEnd::failed : RunEnd::done;
}

}  // namespace copus
