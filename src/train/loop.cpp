#include "copus/train/loop.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "copus/backend/machine.h"
#include "copus/core/config_io.h"
#include "copus/core/error.h"
#include "copus/core/units.h"
#include "copus/data/tokenizer.h"
#include "copus/parallel/flops.h"
#include "copus/state/checkpoint.h"
#include "copus/train/metrics.h"
#include "copus/train/report.h"
#include "train/run_directory.h"

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

// Everything that a run reads, opened and checked before anything is written.
struct Inputs {
  std::optional<Loader> train;
  std::optional<EvalSet> val;
  std::optional<HfModel> weights;
  std::string checkpoint;  // to resume from, or empty
};

Inputs open_inputs(const Config& config, const TrainOptions& options, const RunDirectory& run,
                   Log& log) {
  Inputs inputs;
  std::vector<std::string> problems;
  auto const collect = [&](auto&& body) {
    try {
      body();
    } catch (const ConfigError& e) {
      problems.insert(problems.end(), e.problems().begin(), e.problems().end());
    }
  };
  std::string const directory = run_directory_problem(run.path, options.resume);
  if (!directory.empty()) problems.push_back(directory);
  collect([&] {
    inputs.train.emplace(config.data, config.model.seq_len, config.model.vocab, config.train.seed,
                         log);
  });
  collect([&] {
    inputs.val.emplace(config.data.val, config.model.seq_len, config.model.vocab,
                       config.train.eval_tokens, "val-", log);
  });
  if (options.resume && directory.empty()) {
    FoundCheckpoint found = newest_complete(run.path);
    for (const std::string& reason : found.rejected) log.warn(reason);
    inputs.checkpoint = std::move(found.directory);
    if (inputs.checkpoint.empty())
      log.info("no complete checkpoint to resume from: starting with the first step");
  }
  if (inputs.checkpoint.empty() && !config.model.from.empty()) {
    collect([&] { inputs.weights.emplace(config.model.from, config.model); });
  }
  if (!problems.empty()) throw ConfigError(problems);
  return inputs;
}

void write_config(const std::string& path, const Config& config) {
  std::ofstream out(path);
  out << to_json(config).dump(2) << "\n";
  if (!out.flush()) throw IoError(fmt::format("{}: cannot write the resolved configuration", path));
}

// What the given configuration changes of the one the run was started with, a line a key.
std::vector<std::string> config_differences(const std::string& path, const Config& config) {
  nlohmann::json const stored = nlohmann::json::parse(std::ifstream(path), nullptr, false);
  if (stored.is_discarded())
    return {fmt::format("{}: not readable; the given configuration is used", path)};
  nlohmann::json const before = stored.flatten(), after = to_json(config).flatten();
  std::vector<std::string> lines;
  for (auto const& [key, value] : after.items()) {
    if (!before.contains(key)) {
      lines.push_back(fmt::format("{}: now {}", key, value.dump()));
    } else if (before[key] != value) {
      lines.push_back(fmt::format("{}: was {}, now {}", key, before[key].dump(), value.dump()));
    }
  }
  for (auto const& [key, value] : before.items()) {
    if (!after.contains(key))
      lines.push_back(fmt::format("{}: was {}, now left out", key, value.dump()));
  }
  return lines;
}

// Whose ids the data holds; the end of text is known for the tokenizers this program has.
TokenizerIdentity tokenizer_of(const Loader& data) {
  TokenizerIdentity identity{data.summary().front().tokenizer, {}};
  if (identity.id == "bytes") identity.end_of_text = open_tokenizer(identity.id).end_of_text;
  return identity;
}

std::string host_name() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return name;
}

// One run in progress.
class Run {
 public:
  Run(Config config, const TrainOptions& options, const RunDirectory& directory, Inputs inputs,
      Log& log);
  RunEnd go();

 private:
  void start();
  void load();
  void show_start();
  void report(const StepRecord& record);
  void warn_of_epochs(std::int64_t before);
  void evaluate();
  void save();
  std::string end_reason();  // empty: go on
  FlatModel model() { return {config_.model, trainer_.table(), trainer_.flat()}; }

  Config config_;
  TrainOptions options_;
  RunDirectory directory_;
  Inputs inputs_;
  Log& log_;
  Layout layout_;
  std::unique_ptr<Backend> backend_;
  double peak_flops_;
  Trainer trainer_;
  std::unique_ptr<MetricsFile> metrics_;
  std::optional<Progress> progress_;
  std::int64_t saved_at_ = -1, evaluated_at_ = -1;  // steps
};

Run::Run(Config config, const TrainOptions& options, const RunDirectory& directory, Inputs inputs,
         Log& log)
    : config_(std::move(config)),
      options_(options),
      directory_(directory),
      inputs_(std::move(inputs)),
      log_(log),
      backend_(make_cpu_backend(options.threads)),
      peak_flops_(measured_peak_flops(*backend_)),
      trainer_(config_, layout_, choose_micro(config_), *backend_) {}

void Run::load() {
  if (!inputs_.checkpoint.empty()) {
    trainer_.state().counters =
        load_train_state(inputs_.checkpoint, model(), host_writer(trainer_.state()));
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

void Run::start() {
  make_run_directory(directory_);
  log_.attach_file(directory_.log());
  load();
  show_start();
  if (options_.resume) {
    for (const std::string& line : config_differences(directory_.config(), config_)) {
      log_.info("config differs from the stored one: " + line);
    }
  }
  write_config(directory_.config(), config_);
  const Counters& counters = trainer_.state().counters;
  metrics_ = std::make_unique<MetricsFile>(directory_.metrics(), counters.step);
  progress_.emplace(config_, flops_per_token(config_.model), peak_flops_, counters.tokens);
  std::string const hash = fmt::format("{:016x}", trainer_.weight_hash());
  log_.info(fmt::format("weight hash {}", hash));
  metrics_->event("run", counters,
                  {{"version", options_.version},
                   {"backend", backend_->name()},
                   {"ranks", layout_.world()},
                   {"hosts", {host_name()}},
                   {"weight_hash", hash},
                   {"parameters", parameter_count(config_.model)},
                   {"peak_flops", peak_flops_},
                   {"planned_memory_bytes", trainer_.memory().total()},
                   {"resumed", !inputs_.checkpoint.empty()}});
}

std::string Run::end_reason() {
  const Counters& c = trainer_.state().counters;
  if (c.skipped_in_a_row > config_.train.max_skipped_steps) {
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
  EvalRecord const result = trainer_.evaluate(*inputs_.val, &log_);
  log_.info(fmt::format("eval at step {}: loss {:.4f}, perplexity {:.3f}, over {} tokens",
                        counters.step, result.loss, std::exp(result.loss), result.tokens));
  metrics_->event("eval", counters, {{"loss", result.loss}, {"eval_tokens", result.tokens}});
}

void Run::save() {
  const Counters& counters = trainer_.state().counters;
  if (saved_at_ == counters.step) return;
  auto const start = std::chrono::steady_clock::now();
  SavedCheckpoint const saved =
      save_checkpoint(directory_.path, model(), counters, host_reader(trainer_.state()),
                      tokenizer_of(*inputs_.train), config_.checkpoint.keep);
  double const seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  saved_at_ = counters.step;
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
  bool const failed = counters.skipped_in_a_row > config_.train.max_skipped_steps;
  if (!failed) {
    evaluate();
    save();
  }
  log_.info(
      fmt::format("stopped at step {}, {} tokens: {}", counters.step, counters.tokens, reason));
  metrics_->event("stop", counters, {{"reason", reason}});
  return failed ? RunEnd::failed : RunEnd::done;
}

}  // namespace

RunEnd train(Config config, const TrainOptions& options) {
  Log log;
  RunDirectory const directory{config.run_dir};
  Inputs inputs = open_inputs(config, options, directory, log);
  Run run(std::move(config), options, directory, std::move(inputs), log);
  return run.go();
}

}  // namespace copus
