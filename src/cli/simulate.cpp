// copus simulate: a whole run at cluster scale, static and adaptive, without a rank of it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/commands.h"
#include "cli/number_checks.h"
#include "cli/plan_inputs.h"
#include "cli/say.h"
#include "cli/simulate_files.h"
#include "cli/simulate_report.h"
#include "copus/core/units.h"
#include "copus/parallel/params.h"
#include "state/files.h"

namespace copus {
namespace {

struct Flags {
  PlanFlags inputs;
  std::string noise, out;
  std::optional<double> noise_error, switch_seconds;
  bool json = false;
};

constexpr double kNoiseError = 0.25;
constexpr const char* kRecorded = "metrics:";

NoiseCurve recorded_curve(const Config& config, std::string path) {
  namespace fs = std::filesystem;
  if (fs::is_directory(path)) path += "/metrics.jsonl";
  if (!fs::is_regular_file(path)) {
    throw ConfigError(fmt::format(
        "--noise: {} is no file; metrics: takes a run's metrics.jsonl, or its directory", path));
  }
  constexpr std::int64_t kLargest = std::int64_t{4} << 30;
  return recorded_noise_curve(config, read_text_file(path, kLargest), path);
}

bool is_recorded(const Flags& flags) {
  return flags.noise.starts_with(kRecorded);
}

// What is wrong with the flags, as far as it shows without the configuration.
void check_flags(const Flags& flags, std::vector<std::string>& problems) {
  if (is_recorded(flags)) {
    if (flags.noise_error) {
      problems.push_back(fmt::format(
          "--noise-error: {} is not accepted with --noise metrics:, whose readings have their own "
          "intervals; leave it out",
          *flags.noise_error));
    }
  } else if (!flags.noise.empty()) {
    collect(problems, [&] {
      parse_noise_curve(flags.noise, flags.noise_error.value_or(kNoiseError), "--noise");
    });
  }
  if (!flags.out.empty()) collect(problems, [&] { check_directory_is_free(flags.out); });
}

// A length that nobody gave is 20 tokens a parameter (Hoffmann et al. 2022, arXiv 2203.15556).
void fill_tokens(Config& config, std::vector<std::string>& warnings) {
  if (config.train.tokens > 0) return;
  config.train.tokens = 20 * parameter_count(config.model);
  warnings.push_back(fmt::format("train.tokens: not given; taken as {}, 20 a parameter",
                                 human_count(static_cast<double>(config.train.tokens))));
}

// From a quarter of batch.sequences to twice it, as the square root of progress in its long run.
std::string assumed_curve(const Config& config) {
  constexpr double kGrowth = 8.0;
  return fmt::format("power:{},{},0.5", static_cast<double>(config.batch.sequences) / 4.0,
                     std::max<std::int64_t>(
                         1, config.train.tokens / static_cast<std::int64_t>(kGrowth * kGrowth)));
}

void warn_of_inputs(const Config& config, int world, const NoiseCurve& curve, double goal,
                    std::vector<std::string>& warnings) {
  if (batches_of(config, world).size() == 1) {
    warnings.push_back(
        fmt::format("batch.min, batch.max: not given, or equal; every policy keeps batch {}",
                    config.batch.sequences));
  }
  if (curve.end() && *curve.end() < goal) {
    warnings.push_back(fmt::format(
        "--noise: ends at {} of {} useful tokens; from there on the noise scale stays at {:.4g}",
        human_count(*curve.end()), human_count(goal), curve.at(goal).critical_batch));
  }
}

void run_simulate(const Flags& flags) {
  std::vector<std::string> problems;
  check_flags(flags, problems);
  PlanInputs inputs = plan_inputs(flags.inputs, problems);
  Config& config = inputs.config;
  if (config.model.seq_len > 0) {
    if (problems.empty()) fill_tokens(config, inputs.warnings);
    std::vector<std::string> const more = simulation_problems(config);
    problems.insert(problems.end(), more.begin(), more.end());
  }
  bool const assumed = flags.noise.empty();
  std::string const noise = assumed ? assumed_curve(config) : flags.noise;
  std::optional<NoiseCurve> curve;
  if (is_recorded(flags)) {
    collect(problems,
            [&] { curve = recorded_curve(config, noise.substr(std::string(kRecorded).size())); });
  }
  if (!problems.empty()) throw ConfigError(problems);
  if (!curve) {
    curve = parse_noise_curve(noise, flags.noise_error.value_or(kNoiseError), "--noise");
  }
  Simulation const simulation =
      simulate(config, inputs.cluster, inputs.world, {*curve, flags.switch_seconds});
  warn_of_inputs(config, inputs.world, *curve, simulation.useful_tokens, inputs.warnings);
  if (assumed) inputs.warnings.push_back(fmt::format("--noise: not given; taken as {}", noise));
  for (const std::string& warning : inputs.warnings) say_warning(warning);
  SimulateReport const report{config,  inputs.cluster, inputs.world, noise,
                              assumed, *curve,         simulation};
  if (!flags.out.empty()) write_simulation(flags.out, report);
  if (flags.json) {
    fmt::print("{}", text_of(as_json(report), -1));
  } else {
    print_table(report);
  }
}

}  // namespace

void add_simulate(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  CLI::App* command = app.add_subcommand(
      "simulate", "Play a whole run on a cluster: static, adaptive batch, and batch and layout");
  add_plan_flags(*command, flags->inputs);
  command->add_option(
      "--noise", flags->noise,
      "The noise scale in sequences (times adapt.calibration) along the run's useful tokens t: "
      "power:B0,TOKENS0,EXPONENT is B0 (1 + t / TOKENS0) ^ EXPONENT; points:TOKENS:B,... joins "
      "points; metrics:FILE has a recorded run's readings. Not given: from a quarter of "
      "batch.sequences to twice it");
  command
      ->add_option("--noise-error", flags->noise_error,
                   "The noise scale is measured to within a factor of 1 + this, at gns.confidence "
                   "(0.25; a recorded run has its own)")
      ->check(number_from_zero());
  command
      ->add_option("--switch-seconds", flags->switch_seconds,
                   "What a change of layout takes; not given: all of the state once over the "
                   "slowest link, as the planner books it")
      ->check(number_from_zero());
  command->add_option("--out", flags->out,
                      "A new directory: summary.json, and each policy's run as POLICY.jsonl");
  command->add_flag("--json", flags->json, "One JSON document on stdout");
  command->footer(
      "All policies go on until they have made the progress that train.tokens make at "
      "batch.sequences.\n"
      "Example:\n  copus simulate configs/clusters/llama-2-7b-32xh100.json --set batch.min=64 "
      "--set "
      "batch.max=2048 --set train.tokens=100B --noise power:64,2B,0.5");
  command->callback([flags] { run_simulate(*flags); });
}

}  // namespace copus
