#include "copus/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "copus/core/error.h"
#include "copus/state/initialize.h"
#include "copus/train/evaluator.h"
#include "copus/train/pipeline.h"
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

Spread spread_of(std::span<const double> all, std::size_t first, std::size_t step) {
  std::vector<double> values;
  for (std::size_t i = first; i < all.size(); i += step) values.push_back(all[i]);
  std::sort(values.begin(), values.end());
  return {values.front(), values[values.size() / 2], values.back()};
}

// The most micro-batches a step of the run has on one data-parallel rank.
std::int64_t most_micro_batches(const Config& config, const Layout& layout, std::int64_t micro) {
  std::int64_t most = config.batch.sequences;
  for (const BatchStep& step : config.batch.schedule) most = std::max(most, step.sequences);
  return std::max<std::int64_t>(1, most / (layout.dp * micro));
}

StageSetup setup_of(const Config& config, const Mesh& mesh, std::int64_t micro) {
  StageSetup setup;
  setup.model = config.model;
  setup.layout = mesh.layout();
  setup.micro = micro;
  setup.live =
      live_peak(mesh.layout(), mesh.coord().pp, most_micro_batches(config, mesh.layout(), micro));
  setup.seed = config.train.seed;
  setup.recompute = config.parallel.recompute.value_or(Recompute::none);
  return setup;
}

}  // namespace

Trainer::Trainer(const Config& config, Mesh& mesh, std::int64_t micro, Backend& backend)
    : config_(config),
      mesh_(mesh),
      micro_(micro),
      backend_(backend),
      table_(parameter_table(config.model)),
      flat_(flat_layout(config.model, mesh.layout(), mesh.coord().tp, mesh.coord().pp)),
      setup_(setup_of(config, mesh, micro)),
      memory_(memory_plan(config.model, mesh.layout(), micro,
                          most_micro_batches(config, mesh.layout(), micro), config.train.precision,
                          setup_.recompute, mesh.coord().pp)),
      arena_(backend, memory_.total()),
      owned_(owned_stretches(flat_, mesh.layout(), mesh.coord().dp)),
      optimizer_(table_, flat_, owned_, config.optimizer, backend) {
  weights_ = arena_.take(DType::f32, {flat_.numel});
  gradients_ = arena_.take(DType::f32, {flat_.numel});
  bool const cut = state_is_cut(mesh.layout());
  std::int64_t const state_numel = cut ? flat_.state_numel / mesh.layout().dp : flat_.state_numel;
  state_.master = cut ? arena_.take(DType::f32, {state_numel}) : weights_.slice(0, 0, state_numel);
  state_.m = arena_.take(DType::f32, {state_numel});
  state_.v = arena_.take(DType::f32, {state_numel});
  mesh.split_kv(config.model.kv_heads);
  stage_ = std::make_unique<Stage>(setup_, flat_, mesh, backend, arena_, weights_, gradients_);
  TensorView tied_buffer;
  if (config.model.tie_embeddings && mesh.layout().pp > 1 && mesh.coord().pp == 0) {
    tied_buffer = arena_.take(DType::f32, {flat_.find(table_, Role::embed, -1)->numel()});
  }
  sync_ = std::make_unique<GradientSync>(config.model, table_, flat_, mesh, backend, tied_buffer);
  COPUS_CHECK(arena_.used() == arena_.bytes(), "the memory plan and the arena agree to the byte");
  backend_.zero(state_.m);
  backend_.zero(state_.v);
  state_.counters.seed = config.train.seed;
}

void Trainer::draw_weights(std::uint64_t seed) {
  copus::draw_weights(table_, flat_, seed, backend_, weights_);
  if (!state_is_cut(mesh_.layout())) return;
  for (const Owned& o : owned_) {
    backend_.copy(state_.master.slice(0, o.state, o.size), weights_.slice(0, o.flat, o.size));
  }
}

void Trainer::read_weights(const HfModel& model) {
  copus::read_weights(table_, flat_, model, backend_, weights_);
  if (!state_is_cut(mesh_.layout())) return;
  for (const Owned& o : owned_) {
    backend_.copy(state_.master.slice(0, o.state, o.size), weights_.slice(0, o.flat, o.size));
  }
}

void Trainer::take_master() {
  if (state_is_cut(mesh_.layout())) {
    for (const Owned& o : owned_) {
      backend_.copy(weights_.slice(0, o.flat, o.size), state_.master.slice(0, o.state, o.size));
    }
  }
  sync_->gather(weights_);
}

std::uint64_t Trainer::weight_hash() {
  std::uint64_t hash =
      mesh_.coord().dp == 0 ? copus::weight_hash(table_, flat_, backend_, weights_) : 0;
  // all: each element is counted on one (tp, pp) rank.
  mesh_.all().all_reduce(std::span(&hash, 1), ReduceOp::sum);
  return hash;
}

// This rank's micro-batches: the samples of a step are dealt to the data-parallel ranks in one
// stretch each.
void Trainer::load(const SampleSource& samples, std::int64_t batch) {
  std::int64_t const length = config_.model.seq_len, share = batch / mesh_.layout().dp;
  batches_.resize(static_cast<std::size_t>(share / micro_));
  std::int64_t sample = state_.counters.samples + share * mesh_.coord().dp;
  for (HostBatch& host : batches_) {
    host.ids.resize(static_cast<std::size_t>(micro_ * length));
    host.targets.resize(host.ids.size());
    host.first_sample = sample;
    for (std::int64_t i = 0; i < micro_; ++i) {
      samples(sample++, row(host.ids, i, length), row(host.targets, i, length));
    }
  }
}

// The sum of losses of this rank's micro-batches, on the last stage.
double Trainer::run_schedule(std::int64_t accumulation) {
  auto const step = static_cast<std::uint32_t>(state_.counters.step + 1);
  return run_pipeline(*stage_, mesh_, accumulation, [&](std::int64_t micro) {
    const HostBatch& host = batches_[static_cast<std::size_t>(micro)];
    return MicroBatch{host.ids, host.targets, host.first_sample, step};
  });
}

void Trainer::update(std::int64_t tokens, double norm, double lr) {
  optimizer_.update(state_, gradients_, tokens, norm, lr);
  if (state_is_cut(mesh_.layout())) {
    for (const Owned& o : owned_) {
      backend_.copy(weights_.slice(0, o.flat, o.size), state_.master.slice(0, o.state, o.size));
    }
  }
  sync_->gather(weights_);
}

StepRecord Trainer::step(const SampleSource& samples, std::int64_t batch) {
  std::int64_t const share = mesh_.layout().dp * micro_;
  COPUS_CHECK(batch % share == 0, "a batch is whole micro-batches on every data-parallel rank");
  Clock::time_point const start = Clock::now();
  double const communication_before = mesh_.communication_seconds();
  StepRecord record;
  load(samples, batch);
  record.data_seconds = seconds_since(start);
  backend_.zero(gradients_);
  double const loss_sum = run_schedule(batch / share);
  sync_->reduce(gradients_);

  // all: the step's one scalar reduction. The last stage's first tp rank has a loss; without ZeRO
  // the data-parallel ranks hold the same gradient; each rank puts its times into places of its
  // own.
  bool const counts = state_is_cut(mesh_.layout()) || mesh_.coord().dp == 0;
  double const square_sum = counts ? optimizer_.square_sum(gradients_) : 0.0;
  double const waited = mesh_.communication_seconds() - communication_before;
  std::vector<double> scalars(2 + 3 * static_cast<std::size_t>(mesh_.layout().world()), 0.0);
  scalars[0] = mesh_.coord().tp == 0 ? loss_sum : 0.0;
  scalars[1] = square_sum;
  double* const mine = scalars.data() + 2 + 3 * mesh_.all().rank();
  mine[0] = seconds_since(start) - waited - record.data_seconds;
  mine[1] = waited;
  mine[2] = record.data_seconds;
  mesh_.all().all_reduce(std::span<double>(scalars), ReduceOp::sum);
  std::span<const double> const times = std::span<const double>(scalars).subspan(2);
  record.compute = spread_of(times, 0, 3);
  record.communication = spread_of(times, 1, 3);
  record.data = spread_of(times, 2, 3);

  Counters& counters = state_.counters;
  std::int64_t const step_tokens =
      batch * config_.model.seq_len;  // training windows are full: every target bears loss
  counters.step += 1;
  counters.samples += batch;
  counters.tokens += step_tokens;
  record.step = counters.step;
  record.samples = counters.samples;
  record.tokens = counters.tokens;
  record.batch = batch;
  record.micro = micro_;
  record.loss = scalars[0] / static_cast<double>(step_tokens);
  record.grad_norm = std::sqrt(scalars[1]) / static_cast<double>(step_tokens);
  record.lr =
      learning_rate(config_.optimizer, config_.schedule, config_.train.tokens, counters.tokens);
  if (!std::isfinite(record.loss)) {
    record.skip_reason = "the loss is not finite";
  } else if (!std::isfinite(record.grad_norm)) {
    record.skip_reason = "the gradient norm is not finite";
  }
  if (record.skip_reason.empty()) {
    update(step_tokens, record.grad_norm, record.lr);
    counters.skipped_in_a_row = 0;
  } else {
    counters.skipped_in_a_row += 1;
  }
  backend_.synchronize();
  record.seconds = seconds_since(start);
  return record;
}

EvalRecord Trainer::evaluate(const EvalSet& data, Log* log) {
  return copus::evaluate(*stage_, mesh_, data, micro_, config_.model.seq_len, log);
}

}  // namespace copus
