#include "copus/train/loop.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>

#include "copus/backend/machine.h"
#include "copus/backend/make_backend.h"
#include "copus/core/config_io.h"
#include "copus/core/error.h"
#include "copus/core/units.h"
#include "copus/parallel/flops.h"
#include "copus/state/checkpoint.h"
#include "copus/train/metrics.h"
#include "copus/train/report.h"
#include "copus/train/resolve.h"
#include "train/run_checkpoint.h"
#include "train/run_directory.h"
#include "train/run_inputs.h"

namespace copus {
namespace {

// A point on the token axis that comes again every `every` tokens (0: never).
class TokenInterval {
 public:
  TokenInterval(std::int64_t every, std::int64_t now)
      : every_(every), passed_(every > 0 ? now / every : 0) {}
  // Whether a multiple of `every` lies in what was consumed since the last call.
  bool due(std::int64_t tokens) {
    if (every_ == 0 || tokens / every_ == passed_) return false;
    passed_ = tokens / every_;
    return true;
  }

 private:
  std::int64_t every_, passed_;
};

std::string host_name() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return name;
}

// One rank's part of a run in progress. Only rank 0 writes and reports; everybody computes, and
// decides alike from equal numbers.
class Run {
 public:
  Run(Config config, const TrainOptions& options, const Layout& layout, Mesh& mesh,
      RunInputs inputs, Log& log);
  RunEnd go();

 private:
  bool leads() const { return mesh_.all().rank() == 0; }
  void start();
  void load();
  void show_start();
  void write_run_event();
  void report(const StepRecord& record);
  void warn_of_epochs(std::int64_t before);
  void evaluate();
  void save();
  std::string end_reason();  // empty: go on

  Config config_;
  TrainOptions options_;
  RunDirectory directory_;
  Layout layout_;
  Mesh& mesh_;
  RunInputs inputs_;
  Log& log_;
  std::unique_ptr<Backend> backend_;
  double peak_flops_;  // of all ranks together
  Trainer trainer_;
  std::unique_ptr<MetricsFile> metrics_;  // rank 0
  std::optional<Progress> progress_;
  std::int64_t saved_at_ = -1, evaluated_at_ = -1;  // steps
};

Run::Run(Config config, const TrainOptions& options, const Layout& layout, Mesh& mesh,
         RunInputs inputs, Log& log)
    : config_(std::move(config)),
      options_(options),
      directory_{config_.run_dir},
      layout_(layout),
      mesh_(mesh),
      inputs_(std::move(inputs)),
      log_(log),
      backend_(make_backend(mesh.all().size() > 1 ? DeviceChoice::cpu : config_.device,
                            options.threads)),
      peak_flops_(measured_peak_flops(*backend_)),
      trainer_(config_, mesh_, choose_micro(config_, layout_), *backend_) {
  // all: the ranks measured at the same time, so the sum is what the machine gives them together.
  mesh_.all().all_reduce(std::span(&peak_flops_, 1), ReduceOp::sum);
}

void Run::load() {
  if (!inputs_.checkpoint.empty()) {
    load_run(inputs_.checkpoint, config_.model, mesh_, trainer_);
    log_.info(fmt::format("resumed from {}: step {}, {} tokens", inputs_.checkpoint,
                          trainer_.state().counters.step, trainer_.state().counters.tokens));
    saved_at_ = trainer_.state().counters.step;
  } else if (inputs_.weights) {
    trainer_.read_weights(*inputs_.weights);
  } else {
    trainer_.draw_weights(config_.train.seed);
  }
}

void Run::show_start() {
  for (const std::string& line :
       run_table(config_, layout_, trainer_.micro(), backend_->name(), peak_flops_)) {
    log_.info(line);
  }
  for (const std::string& line :
       data_table(inputs_.train->summary(), inputs_.val->summary(), config_.model.seq_len)) {
    log_.info(line);
  }
  for (const std::string& line : memory_table(trainer_.memory())) log_.info(line);
}

void Run::write_run_event() {
  std::string const hash = fmt::format("{:016x}", trainer_.weight_hash());
  log_.info(fmt::format("weight hash {}", hash));
  if (!leads()) return;
  metrics_->event("run", trainer_.state().counters,
                  {{"version", options_.version},
                   {"backend", backend_->name()},
                   {"transport", mesh_.all().transport()},
                   {"ranks", layout_.world()},
                   {"hosts", {host_name()}},
                   {"weight_hash", hash},
                   {"parameters", parameter_count(config_.model)},
                   {"peak_flops", peak_flops_},
                   {"planned_memory_bytes", trainer_.memory().total()},
                   {"resumed", !inputs_.checkpoint.empty()}});
}

void Run::start() {
  if (leads()) {
    make_run_directory(directory_);
    log_.attach_file(directory_.log());
  }
  load();
  show_start();
  const Counters& counters = trainer_.state().counters;
  progress_.emplace(config_, flops_per_token(config_.model), peak_flops_, counters.tokens);
  if (leads()) {
    if (options_.resume) {
      for (const std::string& line : config_differences(directory_.config(), config_)) {
        log_.info("config differs from the stored one: " + line);
      }
    }
    write_config(directory_.config(), config_);
    metrics_ = std::make_unique<MetricsFile>(directory_.metrics(), counters.step);
  }
  write_run_event();
}

std::string Run::end_reason() {
  const Counters& c = trainer_.state().counters;
  if (c.skipped_in_a_row >= config_.train.max_skipped_steps) {
    return fmt::format("{} steps in a row were not finite (train.max_skipped_steps {})",
                       c.skipped_in_a_row, config_.train.max_skipped_steps);
  }
  if (c.tokens >= config_.train.tokens) return "train.tokens reached";
  std::int64_t const limit = inputs_.train->limit();
  if (limit >= 0 && c.samples + batch_at(config_.batch, c.tokens) > limit) {
    return fmt::format("data.epochs {} used up: {} of {} samples consumed, the next batch has {}",
                       config_.data.epochs.value_or(0), c.samples, limit,
                       batch_at(config_.batch, c.tokens));
  }
  return "";
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
  if (!leads()) return;
  double const rate = static_cast<double>(record.batch * config_.model.seq_len) / record.seconds;
  metrics_->step(record, layout_, rate, progress_->mfu_of(rate));
  std::string const line = progress_->line(record);
  bool const last = record.tokens >= config_.train.tokens;
  if (record.step % config_.log.every_steps == 0 || last || progress_->steps() == 1) {
    log_.info(line);
  } else {
    log_.live(line);
  }
  if (progress_->steps() == 1) {
    log_.info(fmt::format("memory after the first step: {} held at most, {} planned",
                          human_bytes(static_cast<double>(peak_memory_bytes())),
                          human_bytes(static_cast<double>(trainer_.memory().total()))));
  }
  if (!record.skip_reason.empty()) {
    log_.warn(fmt::format("step {} skipped: {}; weights and moments are as before", record.step,
                          record.skip_reason));
    metrics_->event("skip", trainer_.state().counters, {{"reason", record.skip_reason}});
  }
}

void Run::evaluate() {
  const Counters& counters = trainer_.state().counters;
  if (inputs_.val->tokens() == 0 || evaluated_at_ == counters.step) return;
  evaluated_at_ = counters.step;
  EvalRecord const result = trainer_.evaluate(*inputs_.val, leads() ? &log_ : nullptr);
  if (!leads()) return;
  log_.info(fmt::format("eval at step {}: loss {:.4f}, perplexity {:.3f}, over {} tokens",
                        counters.step, result.loss, std::exp(result.loss), result.tokens));
  metrics_->event("eval", counters, {{"loss", result.loss}, {"eval_tokens", result.tokens}});
}

void Run::save() {
  const Counters& counters = trainer_.state().counters;
  if (saved_at_ == counters.step) return;
  auto const start = std::chrono::steady_clock::now();
  SavedCheckpoint const saved = save_run(directory_.path, config_.model, mesh_, trainer_,
                                         tokenizer_of(*inputs_.train), config_.checkpoint.keep);
  double const seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  saved_at_ = counters.step;
  if (!leads()) return;
  for (const std::string& warning : saved.warnings) log_.warn(warning);
  log_.info(fmt::format("checkpoint {}: {} in {}", saved.directory,
                        human_bytes(static_cast<double>(saved.bytes)), human_duration(seconds)));
  metrics_->event("checkpoint", counters,
                  {{"path", saved.directory}, {"bytes", saved.bytes}, {"seconds", seconds}});
}

RunEnd Run::go() {
  start();
  const Counters& counters = trainer_.state().counters;
  TokenInterval evaluation(config_.train.eval_every_tokens, counters.tokens);
  TokenInterval checkpoint(config_.checkpoint.every_tokens, counters.tokens);
  SampleSource const samples = [this](std::int64_t index, std::span<std::int32_t> inputs,
                                      std::span<std::int32_t> targets) {
    inputs_.train->sample(index, inputs, targets);
  };
  std::string reason = end_reason();
  for (; reason.empty(); reason = end_reason()) {
    std::int64_t const before = counters.samples;
    report(trainer_.step(samples, batch_at(config_.batch, counters.tokens)));
    warn_of_epochs(before);
    if (evaluation.due(counters.tokens)) evaluate();
    if (checkpoint.due(counters.tokens)) save();
  }
  bool const failed = counters.skipped_in_a_row >= config_.train.max_skipped_steps;
  if (!failed) {
    evaluate();
    save();
  }
  log_.info(
      fmt::format("stopped at step {}, {} tokens: {}", counters.step, counters.tokens, reason));
  if (leads()) metrics_->event("stop", counters, {{"reason", reason}});
  return failed ? RunEnd::failed : RunEnd::done;
}

bool differ_between_ranks(Communicator& world, const Config& config) {
  std::uint64_t const hash = std::hash<std::string>{}(to_json(config).dump());
  std::uint64_t bounds[2] = {hash, ~hash};
  world.all_reduce(std::span<std::uint64_t>(bounds), ReduceOp::max);
  return bounds[0] != ~bounds[1];
}

// What is wrong anywhere stops every rank before anything is written. The ranks that find the same
// as rank 0 leave the telling to it.
bool agreed(Communicator& world, const std::vector<std::string>& problems) {
  double found[2] = {problems.empty() ? 0.0 : 1.0,
                     !problems.empty() && world.rank() == 0 ? 1.0 : 0.0};
  world.all_reduce(std::span<double>(found), ReduceOp::max);
  if (!problems.empty() && (world.rank() == 0 || found[1] == 0.0)) throw ConfigError(problems);
  return found[0] == 0.0;
}

}  // namespace

RunEnd train(Config config, const TrainOptions& options, Communicator& world) {
  Log log(world.rank(), world.rank() == 0);
  std::vector<std::string> problems;
  Layout layout;
  try {
    layout = resolve_layout(config, world.size());
  } catch (const ConfigError& e) {
    problems = e.problems();
  }
  if (world.size() > 1 && config.device == DeviceChoice::cuda) {
    problems.push_back(
        "device: cuda: several ranks run on the CPU in this version; accepted here: cpu, auto");
  }
  bool const processes = world.transport() == "mpi";
  if (config.transport == TransportChoice::mpi && !processes) {
    problems.push_back(
        "transport: mpi: no launcher started this process; type mpirun -n N copus train ..., or "
        "use thread or auto");
  }
  if (config.transport == TransportChoice::thread && processes) {
    problems.push_back(
        "transport: thread: a launcher started these ranks as processes; run one process with "
        "--ranks N, or use mpi or auto");
  }
  if (config.device == DeviceChoice::cuda && !cuda_problem().empty()) {
    problems.push_back(fmt::format("device: cuda: {}; accepted here: cpu, auto", cuda_problem()));
  }
  RunDirectory const directory{config.run_dir};
  if (differ_between_ranks(world, config)) {
    problems.push_back(
        "the ranks were started with different configurations (another file or --set on some "
        "host)");
  }
  RunInputs inputs = open_inputs(config, options.resume, directory, log, problems);
  if (!agreed(world, problems)) return RunEnd::refused;
  if (layout.world() < world.size()) {
    log.warn(fmt::format("{} of {} ranks are idle: the layout is {}", world.size() - layout.world(),
                         world.size(), to_string(layout)));
  }
  Mesh mesh(world, layout);
  if (!mesh.active()) return RunEnd::done;
  Run run(std::move(config), options, layout, mesh, std::move(inputs), log);
  return run.go();
}

}  // namespace copus
