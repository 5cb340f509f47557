#include "copus/train/trainer.h"

#include <algorithm>
#include <cmath>

#include "comm/timed_communicator.h"
#include "copus/backend/ranges.h"
#include "copus/core/error.h"
#include "copus/state/initialize.h"
#include "copus/train/batch_rule.h"
#include "copus/train/evaluator.h"
#include "copus/train/schedule.h"
#include "train/stopwatch.h"

namespace copus {
namespace {

std::span<std::int32_t> row(std::vector<std::int32_t>& rows, std::int64_t i, std::int64_t length) {
  return std::span(rows).subspan(static_cast<std::size_t>(i * length),
                                 static_cast<std::size_t>(length));
}

// Every `step`-th value from the `first` on is a rank's.
Spread spread_of(std::span<const double> all, std::size_t first, std::size_t step) {
  std::vector<double> values;
  for (std::size_t i = first; i < all.size(); i += step) values.push_back(all[i]);
  return copus::spread_of(values);
}

std::unique_ptr<Communicator> watched(Communicator& world, TrafficCounter& traffic,
                                      CommActivity& activity) {
  return std::make_unique<TimedCommunicator>(world.split(0, world.rank()), "the world", traffic,
                                             activity.own);
}

}  // namespace

Trainer::Trainer(const Config& config, Communicator& world, const Layout& layout,
                 std::int64_t micro, Backend& backend, std::size_t kept_meshes)
    : config_(config),
      world_(watched(world, world_traffic_, *activity_)),
      backend_(backend),
      table_(parameter_table(config.model)),
      meshes_(world, config.model.kv_heads, kept_meshes, activity_),
      mesh_(meshes_.fetch(layout)),
      micro_(micro),
      engine_(make_engine(mesh_, micro)),
      memory_(engine_memory(config, layout, micro, mesh_.coord().pp, backend.attention_library())) {
  state_.counters.seed = config.train.seed;
  if (!engine_) return;
  adopt(std::move(engine_));
  backend_.zero(state_.m);
  backend_.zero(state_.v);
}

std::unique_ptr<Engine> Trainer::make_engine(const Mesh& mesh, std::int64_t micro) {
  if (!mesh.active()) return nullptr;
  std::int64_t const bytes =
      engine_memory(config_, mesh.layout(), micro, mesh.coord().pp, backend_.attention_library())
          .total();
  return std::make_unique<Engine>(config_, mesh, micro, backend_, Arena(backend_, bytes), *queue_);
}

void Trainer::adopt(std::unique_ptr<Engine> engine) {
  engine_ = std::move(engine);
  TrainState kept = std::move(state_);
  state_ = engine_ ? engine_->state() : TrainState{};
  state_.counters = kept.counters;
  state_.planner = std::move(kept.planner);
  if (engine_) engine_->prepare();
}

void Trainer::draw_weights(std::uint64_t seed) {
  if (!active()) return;
  copus::draw_weights(table_, flat(), seed, backend_, engine_->full_weights());
  engine_->give_master();
}

void Trainer::read_weights(const HfModel& model) {
  if (!active()) return;
  copus::read_weights(table_, flat(), model, backend_, engine_->full_weights());
  engine_->give_master();
}

void Trainer::take_master() {
  if (active()) engine_->take_master();
}

std::uint64_t Trainer::weight_hash() {
  if (!active()) return 0;
  TensorView const weights = engine_->gather_full_weights();
  std::uint64_t hash =
      mesh_.coord().dp == 0 ? copus::weight_hash(table_, flat(), backend_, weights) : 0;
  // all: each element is counted on one (tp, pp) rank.
  mesh_.all().all_reduce(std::span(&hash, 1), ReduceOp::sum);
  return hash;
}

// This rank's micro-batches: the samples of a step are dealt to the data-parallel ranks in one
// stretch each.
void Trainer::load(const SampleSource& samples, std::int64_t batch) {
  std::int64_t const length = config_.model.seq_len, share = batch / layout().dp;
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

// Forward and backward of this rank's micro-batches.
PipelineResult Trainer::run_schedule(std::int64_t accumulation) {
  auto const step = static_cast<std::uint32_t>(state_.counters.step + 1);
  auto const batch_of = [&](std::int64_t micro) {
    const HostBatch& host = batches_[static_cast<std::size_t>(micro)];
    return MicroBatch{host.ids, host.targets, host.first_sample, step};
  };
  return run_pipeline(
      engine_->stage(), mesh_, accumulation, batch_of,
      [&](std::int64_t micro, std::int64_t layer) { engine_->sync().layer_ready(micro, layer); });
}

// Forward, backward and the sums over ranks.
Trainer::Share Trainer::compute(const SampleSource& samples, std::int64_t batch) {
  Share share;
  double total = 0.0;
  GradientSync& sync = engine_->sync();
  double const waited_before = mesh_.communication_seconds() + sync.exposed_seconds();
  {
    Stopwatch const watch(total);
    {
      Range const range("data");
      Stopwatch const data_watch(share.data);
      load(samples, batch);
    }
    engine_->stage().start_gradients();
    std::int64_t const accumulation = batch / (layout().dp * micro_);
    sync.begin(accumulation, measures_now());
    PipelineResult const run = run_schedule(accumulation);
    {
      Range const range("gradient sync");
      sync.finish();
    }
    // The last stage's first tp rank has a loss; without ZeRO the data-parallel ranks hold the same
    // gradient.
    share.loss_sum = mesh_.coord().tp == 0 ? run.loss : 0.0;
    share.pace = run.pace.value_or(0.0);
    bool const counts = state_is_cut(layout()) || mesh_.coord().dp == 0;
    share.square_sum = counts ? engine_->optimizer().square_sum(engine_->gradients()) : 0.0;
  }
  if (measures_now()) share_points(batch, share);
  share.communication = mesh_.communication_seconds() + sync.exposed_seconds() - waited_before;
  share.compute = total - share.communication - share.data;
  return share;
}

// In the step that comes next.
bool Trainer::measures_now() const {
  return measures_noise_scale(config_) && (state_.counters.step + 1) % config_.gns.every_steps == 0;
}

// This rank's part of the points at smaller batches than the step's.
void Trainer::share_points(std::int64_t batch, Share& share) const {
  std::int64_t const length = config_.model.seq_len, local = batch / layout().dp;
  bool const speaks = mesh_.coord().tp == 0 && mesh_.coord().pp == 0;
  const GradientSync& sync = engine_->sync();
  if (local > micro_) share.first = sums_of(sync.first_square(), micro_ * length, length, speaks);
  if (layout().dp > 1) share.local = sums_of(sync.local_square(), local * length, length, speaks);
}

// The step's one scalar reduction, over the whole world: idle ranks learn what happened, and each
// active rank puts its times into places of its own. Returns the norms that were measured.
StepNorms Trainer::reduce_scalars(const Share& share, std::int64_t step_tokens,
                                  StepRecord& record) {
  constexpr std::size_t kSums = 11, kTimes = 4;
  auto const ranks = static_cast<std::size_t>(layout().world());
  std::vector<double> scalars{share.loss_sum,
                              share.square_sum,
                              share.flags.stop ? 1.0 : 0.0,  // the decision word
                              share.flags.written ? 1.0 : 0.0,
                              share.first.square,
                              share.first.inverse,
                              share.first.parts,
                              share.local.square,
                              share.local.inverse,
                              share.local.parts,
                              share.flags.check ? 1.0 : 0.0};
  scalars.resize(kSums + kTimes * ranks, 0.0);
  if (active()) {
    double* const mine = scalars.data() + kSums + kTimes * static_cast<std::size_t>(world_->rank());
    mine[0] = share.compute, mine[1] = share.communication, mine[2] = share.data,
    mine[3] = share.pace;
  }
  world_->all_reduce(std::span<double>(scalars), ReduceOp::sum);
  record.loss = scalars[0] / static_cast<double>(step_tokens);
  record.grad_norm = std::sqrt(scalars[1]) / static_cast<double>(step_tokens);
  record.stop_requested = scalars[2] > 0.0;
  record.check_requested = scalars[10] > 0.0;
  record.all_written = scalars[3] >= static_cast<double>(world_->size());
  std::span<const double> const times = std::span<const double>(scalars).subspan(kSums);
  record.compute = spread_of(times, 0, kTimes);
  record.communication = spread_of(times, 1, kTimes);
  record.data = spread_of(times, 2, kTimes);
  record.data_seconds = record.data.max;
  if (double const pace = spread_of(times, 3, kTimes).max; pace > 0.0) record.pace = pace;
  return {point_of({scalars[4], scalars[5], scalars[6]}),
          point_of({scalars[7], scalars[8], scalars[9]}),
          point_of(sums_of(scalars[1], step_tokens, config_.model.seq_len, true))};
}

void Trainer::observe(const StepNorms& norms, StepRecord& record) {
  GnsEstimator estimator(half_life_tokens(config_), config_.gns.confidence, state_.counters.gns,
                         config_.gns.half_life_tokens > 0 ? 0.0 : kLeastEstimates);
  record.gns = estimator.observe(norms, record.tokens);
  state_.counters.gns = estimator.history();
}

void Trainer::update(std::int64_t tokens, double norm, const StepScalars& scalars) {
  Counters& counters = state_.counters;
  counters.updates += 1;
  counters.beta1_product *= scalars.beta1;
  counters.beta2_product *= scalars.beta2;
  if (!active()) return;
  Range const range("optimizer");
  engine_->update(state_, tokens, norm, scalars);
}

// Counts the step, and says by what the optimizer would go.
StepScalars Trainer::count(std::int64_t batch, StepRecord& record) {
  Counters& counters = state_.counters;
  counters.step += 1;
  counters.samples += batch;
  counters.tokens += batch * config_.model.seq_len;
  // What is given wins, also over a checkpoint's.
  if (std::int64_t const given = config_.batch_rule.reference_batch; given > 0) {
    counters.reference_batch = given;
  } else if (counters.reference_batch == 0) {
    counters.reference_batch = batch;
  }
  record.step = counters.step;
  record.samples = counters.samples;
  record.tokens = counters.tokens;
  record.batch = batch;
  record.micro = micro_;
  StepScalars const scalars = scalars_for_batch(
      config_.batch_rule, config_.optimizer,
      learning_rate(config_.optimizer, config_.schedule, config_.train.tokens, counters.tokens),
      static_cast<double>(batch) / static_cast<double>(counters.reference_batch));
  record.lr = scalars.lr;
  return scalars;
}

StepRecord Trainer::step(const SampleSource& samples, std::int64_t batch, StepFlags flags) {
  COPUS_CHECK(batch % (layout().dp * micro_) == 0,
              "a batch is whole micro-batches on every data-parallel rank");
  Range const range("step", state_.counters.step + 1);
  StepRecord record;
  double seconds = 0.0;
  Stopwatch const watch(seconds);
  Share share = active() ? compute(samples, batch) : Share{};
  share.flags = flags;
  // Training windows are full: every target bears loss.
  std::int64_t const step_tokens = batch * config_.model.seq_len;
  bool const measured = measures_now();
  StepNorms const norms = reduce_scalars(share, step_tokens, record);
  StepScalars const scalars = count(batch, record);
  if (!std::isfinite(record.loss)) {
    record.skip_reason = "the loss is not finite";
  } else if (!std::isfinite(record.grad_norm)) {
    record.skip_reason = "the gradient norm is not finite";
  }
  if (record.skip_reason.empty()) {
    if (measured) observe(norms, record);
    update(step_tokens, record.grad_norm, scalars);
    state_.counters.skipped_in_a_row = 0;
  } else {
    state_.counters.skipped_in_a_row += 1;
  }
  backend_.synchronize();
  record.seconds = watch.elapsed();
  return record;
}

EvalRecord Trainer::evaluate(const EvalSet& data, Log* log, const std::function<bool()>& stop) {
  EvalRecord record;
  if (active()) {
    record =
        copus::evaluate(engine_->stage(), mesh_, data, micro_, config_.model.seq_len, log, stop);
  }
  double stopped = record.stopped ? 1.0 : 0.0;
  // world: ranks that idle leave with the others.
  world_->all_reduce(std::span(&stopped, 1), ReduceOp::max);
  record.stopped = stopped > 0.0;
  return record;
}

}  // namespace copus
