#include "train/run_inputs.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "copus/comm/broadcast.h"
#include "copus/comm/vote.h"
#include "copus/core/config_io.h"
#include "copus/core/error.h"
#include "copus/data/tokenizer.h"
#include "state/files.h"
#include "train/metrics_record.h"
#include "train/stopwatch.h"

namespace copus {

namespace {

// Steps that a checkpoint held must not be trained again from nothing because it is gone.
void require_no_lost_checkpoint(const RunDirectory& run, std::vector<std::string>& problems) {
  MetricsRecord const record = read_metrics_record(run.metrics());
  if (record.saved_step < 0 && record.unreadable > 0) {
    problems.push_back(fmt::format(
        "--resume: {}: line {} is no line of a record, so whether a checkpoint is missing cannot "
        "be told, and {} holds none: put the file right, or start anew in another folder "
        "(--run-dir)",
        run.metrics(), record.first_unreadable, run.checkpoints()));
  }
  if (record.saved_step < 0) return;
  problems.push_back(fmt::format(
      "--resume: {} tells of a checkpoint of step {}, and {} holds none: put it back, or start "
      "anew in another folder (--run-dir)",
      run.metrics(), record.saved_step, run.checkpoints()));
}

// On rank 0: the newest complete one, or none and why not.
FoundCheckpoint find_checkpoint(const RunDirectory& run, Log& log,
                                std::vector<std::string>& problems) {
  FoundCheckpoint found = newest_complete(run.path);
  if (found.directory.empty() && found.rejected.empty()) require_no_lost_checkpoint(run, problems);
  // Starting over would overwrite the record of what was trained.
  if (found.directory.empty() && !found.rejected.empty())
    problems.push_back(fmt::format("--resume: no checkpoint of {} is complete:", run.path));
  for (const FoundCheckpoint::PassedOver& other : found.rejected) {
    for (const std::string& reason : other.problems) {
      if (found.directory.empty()) {
        problems.push_back(reason);
      } else {
        log.warn(reason);
      }
    }
  }
  return found;
}

// Before anything is written: a checkpoint of another model is refused. Other data may be meant.
void compare(const RunInputs& inputs, const Config& config, Log& log) {
  const std::string& directory = inputs.checkpoint.directory;
  require_same_model(directory, config.model);
  std::uint64_t const stored = read_checkpoint_summary(directory).data;
  if (inputs.train && stored != 0 && stored != inputs.train->identity())
    log.warn(fmt::format(
        "data.train: not the tokens that {} was trained on: from here on samples are those of the "
        "present ones",
        directory));
}

// The same on every rank, whatever each can see: what follows must not depend on that. Those passed
// over are rank 0's to know.
FoundCheckpoint agreed_checkpoint(const RunDirectory& run, bool search, Communicator& world,
                                  Log& log, std::vector<std::string>& problems) {
  FoundCheckpoint found;
  if (search && world.rank() == 0) found = find_checkpoint(run, log, problems);
  found.directory = broadcast_text(world, found.directory, 0);
  if (!found.directory.empty() && !std::filesystem::exists(found.directory)) {
    problems.push_back(fmt::format(
        "--resume: {} is not to be seen from rank {}: run_dir must lie on a file system that all "
        "hosts share",
        found.directory, world.rank()));
  }
  return found;
}

}  // namespace

RunInputs open_inputs(const Config& config, bool resume, const RunDirectory& run,
                      Communicator& world, Log& log, std::vector<std::string>& problems) {
  RunInputs inputs;
  auto const collect = [&](auto&& body) {
    try {
      body();
    } catch (const ConfigError& e) {
      problems.insert(problems.end(), e.problems().begin(), e.problems().end());
    }
  };
  std::string const directory = run_directory_problem(run.path, resume);
  if (!directory.empty()) problems.push_back(directory);
  collect([&] {
    inputs.train.emplace(config.data, config.model.seq_len, config.model.vocab, config.train.seed,
                         log);
  });
  collect([&] {
    inputs.val.emplace(config.data.val, config.model.seq_len, config.model.vocab,
                       config.train.eval_tokens, "val-", log);
  });
  if (resume) {
    Stopwatch const watch(inputs.check_seconds);
    bool found = directory.empty();
    if (found && world.rank() == 0) {
      // A run that is still saving its last state would make another checkpoint the newest.
      inputs.lock = std::make_unique<RunLock>();
      std::string const taken = problem_of([&] { return inputs.lock->take(run, resume); });
      if (!taken.empty()) problems.push_back(taken);
      found = taken.empty();
    }
    inputs.checkpoint = agreed_checkpoint(run, found, world, log, problems);
    if (world.rank() == 0 && !inputs.checkpoint.directory.empty())
      collect([&] { compare(inputs, config, log); });
  }
  if (inputs.checkpoint.directory.empty() && !config.model.from.empty()) {
    Depth const depth = world.rank() == 0 ? Depth::contents : Depth::sizes;
    collect([&] { inputs.weights.emplace(config.model.from, config.model, depth); });
  }
  return inputs;
}

void write_config(const std::string& path, const Config& config) {
  std::string const text = to_json(config).dump(2) + "\n";
  std::ifstream in(path);
  std::string const stored{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  // A full disk is no reason not to go on with the same configuration.
  if (stored != text) replace_text_file(path, text);
}

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

TokenizerIdentity tokenizer_of(const Loader& data) {
  TokenizerIdentity identity{data.summary().front().tokenizer, {}, data.identity()};
  if (identity.id == "bytes") identity.end_of_text = open_tokenizer(identity.id).end_of_text;
  return identity;
}

}  // namespace copus
