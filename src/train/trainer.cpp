#include "copus/train/trainer.h"

#include <chrono>
#include <cmath>
#include <numeric>

#include "copus/core/error.h"
#include "copus/state/initialize.h"
#include "copus/train/evaluator.h"
#include "copus/train/schedule.h"

namespace copus {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::span<std::int32_t> row(std::vector<std::int32_t>& rows, std::int64_t i, std::int64_t length) {
  return std::span(rows).subspan(static_cast<std::size_t>(i * length),
                                 static_cast<std::size_t>(length));
}

}  // namespace

Trainer::Trainer(const Config& config, const Layout& layout, std::int64_t micro, Backend& backend)
    : config_(config),
      micro_(micro),
      backend_(backend),
      table_(parameter_table(config.model)),
      flat_(flat_layout(config.model, layout, 0, 0)),
      memory_(
          memory_plan(config.model, layout, micro, 1, config.train.precision, Recompute::none, 0)),
      arena_(backend, memory_.total()),
      optimizer_(table_, flat_, config.optimizer, backend),
      ids_(static_cast<std::size_t>(micro * config.model.seq_len)),
      targets_(ids_.size()) {
  state_.master = arena_.take(DType::f32, {flat_.numel});
  gradients_ = arena_.take(DType::f32, {flat_.numel});
  state_.m = arena_.take(DType::f32, {flat_.numel});
  state_.v = arena_.take(DType::f32, {flat_.numel});
  stage_ = std::make_unique<Stage>(config.model, layout, flat_, micro, config.train.seed, backend,
                                   arena_, state_.master, gradients_);
  COPUS_CHECK(arena_.used() == arena_.bytes(), "the memory plan and the arena agree to the byte");
  backend_.zero(state_.m);
  backend_.zero(state_.v);
  state_.counters.seed = config.train.seed;
}

void Trainer::draw_weights(std::uint64_t seed) {
  copus::draw_weights(table_, flat_, seed, backend_, state_.master);
}
void Trainer::read_weights(const HfModel& model) {
  copus::read_weights(table_, flat_, model, backend_, state_.master);
}
std::uint64_t Trainer::weight_hash() {
  return copus::weight_hash(table_, flat_, backend_, state_.master);
}

StepRecord Trainer::step(const SampleSource& samples, std::int64_t batch) {
  COPUS_CHECK(batch % micro_ == 0, "a batch is whole micro-batches");
  Clock::time_point const start = Clock::now();
  std::int64_t const length = config_.model.seq_len;
  Counters& counters = state_.counters;
  StepRecord record;
  double loss_sum = 0.0;
  backend_.zero(gradients_);
  for (std::int64_t done = 0; done < batch; done += micro_) {
    std::int64_t const first = counters.samples + done;
    Clock::time_point const waiting = Clock::now();
    for (std::int64_t i = 0; i < micro_; ++i)
      samples(first + i, row(ids_, i, length), row(targets_, i, length));
    record.data_seconds += seconds_since(waiting);
    loss_sum += stage_->forward_backward(
        {ids_, targets_, first, static_cast<std::uint32_t>(counters.step + 1)});
  }
  std::int64_t const step_tokens =
      batch * length;  // training windows are full: every target bears loss
  counters.step += 1;
  counters.samples += batch;
  counters.tokens += step_tokens;
  record.step = counters.step;
  record.samples = counters.samples;
  record.tokens = counters.tokens;
  record.batch = batch;
  record.micro = micro_;
  record.loss = loss_sum / static_cast<double>(step_tokens);
  record.grad_norm = optimizer_.gradient_norm(gradients_, step_tokens);
  record.lr =
      learning_rate(config_.optimizer, config_.schedule, config_.train.tokens, counters.tokens);
  if (!std::isfinite(record.loss)) {
    record.skip_reason = "the loss is not finite";
  } else if (!std::isfinite(record.grad_norm)) {
    record.skip_reason = "the gradient norm is not finite";
  }
  if (record.skip_reason.empty()) {
    optimizer_.update(state_, gradients_, step_tokens, record.grad_norm, record.lr);
    counters.skipped_in_a_row = 0;
  } else {
    counters.skipped_in_a_row += 1;
  }
  backend_.synchronize();
  record.seconds = seconds_since(start);
  return record;
}

EvalRecord Trainer::evaluate(const EvalSet& data, Log* log) {
  return copus::evaluate(*stage_, data, micro_, config_.model.seq_len, log);
}

std::int64_t choose_micro(const Config& config) {
  if (config.batch.micro) return *config.batch.micro;
  constexpr std::int64_t kTokens = 4096;
  std::int64_t common = config.batch.sequences;
  for (const BatchStep& step : config.batch.schedule) common = std::gcd(common, step.sequences);
  std::int64_t micro = 1;
  for (std::int64_t m = 1; m <= common && m * config.model.seq_len <= kTokens; ++m) {
    if (common % m == 0) micro = m;
  }
  return micro;
}

}  // namespace copus
