// copus plan: what a configuration could run as on a cluster, without a rank of it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/find_hardware.h"
#include "cli/number_checks.h"
#include "cli/overrides.h"
#include "cli/plan_report.h"
#include "cli/say.h"
#include "copus/core/error.h"
#include "copus/state/hf.h"

namespace copus {
namespace {

struct PlanFlags {
  std::string config_path;
  std::vector<std::string> set;
  int world = 0;
  double critical_batch = 0.0;
  std::size_t top = 15;
  bool all = false, json = false;
};

// Adds what `body` refuses to the problems found so far.
template <class Body>
void collect(std::vector<std::string>& problems, Body&& body) {
  try {
    body();
  } catch (const ConfigError& e) {
    problems.insert(problems.end(), e.problems().begin(), e.problems().end());
  }
}

int world_of(const PlanFlags& flags, const ClusterConfig& cluster) {
  constexpr std::int64_t kMostRanks = 1 << 16;
  std::int64_t const world = flags.world > 0 ? flags.world : cluster.nodes * cluster.gpus_per_node;
  if (world > kMostRanks) {
    throw ConfigError(
        fmt::format("cluster.nodes: {} of {} GPUs are {} ranks; it takes up to {} ranks in all",
                    cluster.nodes, cluster.gpus_per_node, world, kMostRanks));
  }
  return static_cast<int>(world);
}

Cluster find_cluster(const Config& config) {
  Cluster cluster = cluster_of(config.cluster, find_hardware(config.cluster, config.device));
  if (cluster.hardware.matrix(config.train.precision).peak_flops <= 0.0) {
    throw ConfigError(
        fmt::format("train.precision: \"{}\" has no rate in the hardware \"{}\"; it takes \"fp32\"",
                    name_of(config.train.precision), config.cluster.hardware));
  }
  return cluster;
}

void run_plan(const PlanFlags& flags) {
  std::vector<std::string> problems, warnings;
  Overrides const overrides = overrides_of(flags.set, problems);
  Config config;
  collect(problems, [&] {
    config = read_config(flags.config_path, overrides, ConfigUse::plan, warnings);
    resolve_model(config);
  });
  if (!problems.empty()) throw ConfigError(problems);
  Cluster cluster;
  int world = 0, used = 0;
  collect(problems, [&] { world = world_of(flags, config.cluster); });
  collect(problems, [&] { cluster = find_cluster(config); });
  collect(problems, [&] {
    if (world > 0) used = layouts_of(config, world).ranks;
  });
  if (!problems.empty()) throw ConfigError(problems);
  for (const std::string& warning : warnings) say_warning(warning);
  if (used < world) {
    say_warning(fmt::format("{} of {} ranks stay idle: no legal layout uses more than {}",
                            world - used, world, used));
  }
  double const phi = flags.critical_batch > 0.0 ? config.adapt.calibration * flags.critical_batch
                                                : std::numeric_limits<double>::infinity();
  PlanReport report{config, cluster, world, phi, candidates_of(config, cluster, world)};
  sort_candidates(report);
  if (flags.json) {
    fmt::print("{}\n", as_json(report).dump());
  } else {
    print_table(report, flags.all ? report.candidates.size() : flags.top);
  }
}

}  // namespace

void add_plan(CLI::App& app) {
  auto flags = std::make_shared<PlanFlags>();
  CLI::App* command = app.add_subcommand(
      "plan", "Price every layout, micro-batch and batch of a configuration on a cluster");
  command
      ->add_option("config", flags->config_path,
                   "JSON file; only model, batch and cluster are needed")
      ->required();
  add_set_option(*command, flags->set);
  command
      ->add_option("--world", flags->world,
                   "Ranks in all, instead of cluster.nodes x cluster.gpus_per_node")
      ->check(whole_from(1));
  command
      ->add_option("--critical-batch", flags->critical_batch,
                   "The noise scale in sequences, as a run's metrics have it (times "
                   "adapt.calibration); not given: as if every batch were far below it")
      ->check(number_above_zero());
  command->add_option("--top", flags->top, "Rows of the table")->capture_default_str();
  command->add_flag("--all", flags->all, "Every row of the table");
  command->add_flag("--json", flags->json, "One JSON document on stdout, with every candidate");
  command->footer(
      "Example:\n  copus plan configs/clusters/llama-2-7b-32xh100.json --critical-batch 500");
  command->callback([flags] { run_plan(*flags); });
}

}  // namespace copus
