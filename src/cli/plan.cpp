// copus plan: what a configuration could run as on a cluster, without a rank of it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/number_checks.h"
#include "cli/plan_inputs.h"
#include "cli/plan_report.h"
#include "cli/say.h"

namespace copus {
namespace {

struct Flags {
  PlanFlags inputs;
  double critical_batch = 0.0;
  std::size_t top = 15;
  bool all = false, json = false;
};

void run_plan(const Flags& flags) {
  std::vector<std::string> problems;
  PlanInputs const inputs = plan_inputs(flags.inputs, problems);
  if (!problems.empty()) throw ConfigError(problems);
  for (const std::string& warning : inputs.warnings) say_warning(warning);
  const Config& config = inputs.config;
  double const phi = flags.critical_batch > 0.0 ? config.adapt.calibration * flags.critical_batch
                                                : std::numeric_limits<double>::infinity();
  PlanReport report{config, inputs.cluster, inputs.world, phi,
                    candidates_of(config, inputs.cluster, inputs.world)};
  sort_candidates(report);
  if (flags.json) {
    fmt::print("{}\n", as_json(report).dump());
  } else {
    print_table(report, flags.all ? report.candidates.size() : flags.top);
  }
}

}  // namespace

void add_plan(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  CLI::App* command = app.add_subcommand(
      "plan", "Price every layout, micro-batch and batch of a configuration on a cluster");
  add_plan_flags(*command, flags->inputs);
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
