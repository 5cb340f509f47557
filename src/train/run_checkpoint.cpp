#include "train/run_checkpoint.h"

#include <exception>
#include <utility>

#include "copus/comm/broadcast.h"
#include "copus/comm/vote.h"
#include "copus/core/error.h"
#include "copus/state/move_state.h"
#include "train/stopwatch.h"

namespace copus {
namespace {

TrainState views_of(std::vector<float> (&buffers)[3]) {
  auto const view = [](std::vector<float>& x) {
    return TensorView(x.data(), DType::f32, {static_cast<std::int64_t>(x.size())});
  };
  return {view(buffers[0]), view(buffers[1]), view(buffers[2]), {}, {}};
}

}  // namespace

CheckpointWriter::~CheckpointWriter() {
  if (thread_.joinable()) thread_.join();
}

// Each part's tensors, whole, on the rank that writes it: where the writing thread reads them.
StateReader CheckpointWriter::gather(Trainer& trainer, bool wait) {
  const Layout& layout = trainer.layout();
  auto const rank = static_cast<std::size_t>(trainer.world().rank());
  if (layout.world() == 1) {
    // Rank 0 has them all. What is waited for needs no copy.
    if (rank > 0) return {};
    StateShard const whole = state_shard(model_, layout, 0);
    if (wait) return shard_reader(whole, backend_reader(trainer.backend(), trainer.state()));
    const TensorView* const live[] = {&trainer.state().master, &trainer.state().m,
                                      &trainer.state().v};
    for (std::size_t i = 0; i < 3; ++i) {
      snapshot_[i].resize(static_cast<std::size_t>(whole.numel));
      trainer.backend().download(snapshot_[i].data(), *live[i]);
    }
    return shard_reader(whole, host_reader(views_of(snapshot_)));
  }
  std::vector<StateShard> wanted;
  for (const CheckpointPart& part : parts_) wanted.push_back(part_shard(model_, part));
  StateShard const mine = rank < wanted.size() ? wanted[rank] : StateShard{};
  for (std::vector<float>& buffer : snapshot_) buffer.resize(static_cast<std::size_t>(mine.numel));
  TransferPlan const plan = transfer_plan(state_shards(model_, layout), wanted);
  move_state(trainer.world(), trainer.backend(), rank_transfer(plan, trainer.world().rank()),
             trainer.state(), views_of(snapshot_), Landing::host);
  if (rank >= wanted.size()) return {};
  return shard_reader(mine, host_reader(views_of(snapshot_)));
}

std::string CheckpointWriter::start(Trainer& trainer, bool wait) {
  COPUS_CHECK(!under_way(), "one checkpoint at a time");
  started_ = std::chrono::steady_clock::now();
  Communicator& world = trainer.world();
  counters_ = trainer.state().counters;
  planner_ = trainer.state().planner;
  std::string const problem =
      first_problem(world, problem_of([&] {
                      if (world.rank() == 0)
                        draft_ = std::make_unique<CheckpointDraft>(run_dir_, counters_.step);
                      return std::string();
                    }));
  if (!problem.empty()) {
    draft_.reset();
    return problem;
  }
  model_ = trainer.model();
  parts_ = checkpoint_parts(model_, trainer.layout().world());
  StateReader const read = gather(trainer, wait);
  sums_ = {};
  problem_.clear();
  done_ = !read;
  if (read) {
    thread_ = std::thread([this, read, rank = static_cast<std::size_t>(world.rank())] {
      problem_ = problem_of([&] {
        sums_ = write_checkpoint_part(CheckpointDraft::draft_path(run_dir_, counters_.step), model_,
                                      parts_, rank, read);
        return std::string();
      });
      done_ = true;
    });
  }
  stall_seconds_ =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
  return "";
}

std::vector<PartSums> CheckpointWriter::share_sums(Communicator& world) const {
  std::vector<std::uint64_t> words(4 * parts_.size());
  auto const rank = static_cast<std::size_t>(world.rank());
  if (rank < parts_.size()) {
    words[4 * rank] = static_cast<std::uint64_t>(sums_.model_bytes);
    words[4 * rank + 1] = static_cast<std::uint64_t>(sums_.optimizer_bytes);
    words[4 * rank + 2] = sums_.model_hash;
    words[4 * rank + 3] = sums_.optimizer_hash;
  }
  // world: each writer has filled its own place.
  world.all_reduce(std::span<std::uint64_t>(words), ReduceOp::sum);
  std::vector<PartSums> sums;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    sums.push_back({static_cast<std::int64_t>(words[4 * i]),
                    static_cast<std::int64_t>(words[4 * i + 1]), words[4 * i + 2],
                    words[4 * i + 3]});
  }
  return sums;
}

CheckpointWriter::Result CheckpointWriter::finish(Communicator& world) {
  Result result;
  double seconds = 0.0;
  Stopwatch const watch(seconds);
  if (thread_.joinable()) thread_.join();
  result.problem = first_problem(world, problem_);
  if (result.problem.empty()) {
    std::vector<PartSums> const sums = share_sums(world);
    result.problem = first_problem(world, problem_of([&] {
                                     if (world.rank() == 0)
                                       result.saved =
                                           draft_->publish(model_, counters_, parts_, sums,
                                                           tokenizer_, keep_, planner_);
                                     return std::string();
                                   }));
  }
  draft_.reset();
  parts_.clear();
  result.stall_seconds = stall_seconds_ + watch.elapsed();
  result.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
  return result;
}

namespace {

// Step times of windows of another length are no step times of these.
PlannerMemory planner_memory(const std::string& directory, const ModelConfig& model) {
  CheckpointSummary const summary = read_checkpoint_summary(directory);
  return summary.model.seq_len == model.seq_len ? summary.planner : PlannerMemory{};
}

}  // namespace

void load_run(const std::string& directory, const ModelConfig& model, Trainer& trainer) {
  Communicator& world = trainer.world();
  std::uint64_t const seed = trainer.state().counters.seed;
  Counters counters;
  std::exception_ptr failure;
  std::string const problem = problem_of([&] {
    try {
      if (!trainer.active()) return std::string();
      for (const TensorView& buffer :
           {trainer.state().master, trainer.state().m, trainer.state().v})
        trainer.backend().zero(buffer);  // padding is in no file
      counters =
          load_train_state(directory, model, state_shard(model, trainer.layout(), world.rank()),
                           backend_writer(trainer.backend(), trainer.state()));
      if (world.rank() == 0) trainer.state().planner = planner_memory(directory, model);
      return std::string();
    } catch (const ConfigError&) {
      failure = std::current_exception();
      throw;
    }
  });
  std::string const first = first_problem(world, problem);
  if (failure) std::rethrow_exception(failure);
  if (!problem.empty()) throw IoError(problem);
  if (!first.empty()) throw ConfigError(std::vector<std::string>{});
  broadcast_value(world, counters, 0);
  counters.seed = seed;
  trainer.state().counters = counters;
  trainer.take_master();
}

}  // namespace copus
