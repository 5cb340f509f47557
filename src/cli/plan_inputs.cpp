#include "cli/plan_inputs.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "cli/find_hardware.h"
#include "cli/number_checks.h"
#include "cli/overrides.h"
#include "copus/state/hf.h"

namespace copus {
namespace {

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

}  // namespace

void add_plan_flags(CLI::App& command, PlanFlags& flags) {
  command
      .add_option("config", flags.config_path,
                  "JSON file; only model, batch and cluster are needed")
      ->required();
  add_set_option(command, flags.set);
  command
      .add_option("--world", flags.world,
                  "Ranks in all, instead of cluster.nodes x cluster.gpus_per_node")
      ->check(whole_from(1));
}

PlanInputs plan_inputs(const PlanFlags& flags, std::vector<std::string>& problems) {
  PlanInputs out;
  std::size_t const before = problems.size();
  Overrides const overrides = overrides_of(flags.set, problems);
  collect(problems, [&] {
    out.config = read_config(flags.config_path, overrides, ConfigUse::plan, out.warnings);
    resolve_model(out.config);
  });
  if (problems.size() > before) return out;
  int used = 0;
  collect(problems, [&] { out.world = world_of(flags, out.config.cluster); });
  collect(problems, [&] { out.cluster = find_cluster(out.config); });
  if (flags.world > 0) {
    std::int64_t const node = std::max<std::int64_t>(1, out.cluster.gpus_per_node);
    out.cluster.nodes = (out.world + node - 1) / node;
  }
  collect(problems, [&] {
    if (out.world > 0) used = layouts_of(out.config, out.world).ranks;
  });
  if (used > 0 && used < out.world) {
    out.warnings.push_back(
        fmt::format("{} of {} ranks stay idle: no legal layout uses more than {}", out.world - used,
                    out.world, used));
  }
  return out;
}

}  // namespace copus
