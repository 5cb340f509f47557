// copus train: one run from a configuration file.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>

#include "cli/commands.h"
#include "cli/find_hardware.h"
#include "cli/launch.h"
#include "cli/number_checks.h"
#include "cli/overrides.h"
#include "cli/request_signals.h"
#include "cli/say.h"
#include "copus/core/config_io.h"
#include "copus/core/error.h"
#include "copus/state/checkpoint.h"
#include "copus/state/hf.h"
#include "copus/train/loop.h"

namespace copus {
namespace {

struct TrainFlags {
  std::string config_path, run_dir;
  std::vector<std::string> set;
  std::optional<int> ranks;
  TrainOptions options;
};

// The sizes of a model given by model.from. A run that goes on has its model in its own
// checkpoints, and what it once started from may be gone. Every process does this; whether the
// checkpoint is whole is one rank's to find out, later.
void find_model(Config& config, bool resume) {
  std::string const from = config.model.from;
  if (resume && !from.empty()) {
    std::string const found = newest_described(config.run_dir);
    if (!found.empty()) config.model.from = found;
  }
  resolve_model(config);
  config.model.from = from;
}

void run_train(const TrainFlags& flags) {
  catch_request_signals();
  std::vector<std::string> problems, warnings;
  Overrides const overrides = overrides_of(flags.set, problems);
  Config config;
  try {
    config = read_config(flags.config_path, overrides, ConfigUse::train, warnings);
    if (!flags.run_dir.empty()) config.run_dir = flags.run_dir;
    find_model(config, flags.options.resume);
    for (std::string& problem : not_yet(config)) problems.push_back(std::move(problem));
  } catch (const ConfigError& e) {
    problems.insert(problems.end(), e.problems().begin(), e.problems().end());
  }
  if (!problems.empty()) throw ConfigError(problems);
  std::optional<Hardware> hardware;
  if (config.cluster.hardware != "measure") hardware = find_hardware(config.cluster, config.device);
  bool stopped = false;
  launch(flags.ranks, flags.options.threads, [&](Communicator& world, const RankShare& share) {
    if (world.rank() == 0) {
      for (const std::string& warning : warnings) say_warning(warning);
    }
    TrainOptions options = flags.options;
    options.hardware = hardware;
    options.threads = share.threads;
    options.local_rank = share.local_rank;
    options.stop_reason = [] {
      int const signal = stop_signal();
      return signal == 0 ? std::string() : name_of_signal(signal);
    };
    options.check_asked = take_check_request;
    switch (train(config, options, world)) {
      case RunEnd::done:
        return;
      case RunEnd::stopped:
        if (world.rank() == 0 || world.transport() != "thread") stopped = true;
        return;
      case RunEnd::failed:
        throw std::runtime_error("the run did not finish; see above");
      case RunEnd::refused:
        throw ConfigError(std::vector<std::string>{});
    }
  });
  if (stopped) throw Stopped();
}

}  // namespace

void add_train(CLI::App& app) {
  auto flags = std::make_shared<TrainFlags>();
  flags->options.version = COPUS_VERSION;
  CLI::App* command = app.add_subcommand("train", "Train a model as a configuration file says");
  command
      ->add_option("config", flags->config_path,
                   "JSON file; docs/configuration.md explains every key")
      ->required();
  command->add_option("--set", flags->set, "Override a key, as section.key=value; may be repeated")
      ->allow_extra_args(false);
  command
      ->add_option("--ranks", flags->ranks,
                   "Ranks to run as threads of this process; 1 when not given")
      ->check(whole_from(1));
  command
      ->add_option("--threads", flags->options.threads,
                   "CPU threads of a rank; 0: all it may run on")
      ->default_val(0)
      ->check(whole_from(0));
  command->add_option("--run-dir", flags->run_dir, "Where the run is written, instead of run_dir");
  command->add_flag("--resume", flags->options.resume,
                    "Go on from the newest complete checkpoint of the run directory");
  command->footer(
      "Example:\n  copus train configs/quickstart.json --set train.tokens=2M --run-dir runs/short");
  command->callback([flags] { run_train(*flags); });
}

}  // namespace copus
