// copus bench: what this machine reaches, by operation and for a whole step.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "backend/op_bench.h"
#include "cli/commands.h"
#include "cli/device_option.h"
#include "cli/number_checks.h"
#include "copus/backend/machine.h"
#include "copus/backend/make_backend.h"
#include "copus/core/config_io.h"
#include "copus/core/error.h"
#include "copus/core/units.h"
#include "copus/train/step_bench.h"

namespace copus {
namespace {

struct StepFlags {
  std::string model = "gpt2-124m", precision = "fp32";
  std::int64_t batch = 4, seq_len = 256, micro = 0;
  int threads = 0, steps = 5;
  DeviceChoice device = DeviceChoice::automatic;
  bool json = false;
};

Config config_of(const StepFlags& flags) {
  std::vector<std::string> problems;
  Config config;
  try {
    config.model = model_preset(flags.model);
  } catch (const ConfigError& e) {
    problems = e.problems();
  }
  if (problems.empty() && flags.seq_len > config.model.max_positions) {
    problems.push_back(fmt::format("--seq-len {}: {} takes at most {}", flags.seq_len, flags.model,
                                   config.model.max_positions));
  }
  if (flags.precision != "fp32") {
    problems.push_back(fmt::format("--precision {}: this version takes fp32", flags.precision));
  }
  if (flags.micro > 0 && flags.batch % flags.micro != 0) {
    problems.push_back(
        fmt::format("--micro {}: does not divide --batch {}", flags.micro, flags.batch));
  }
  if (!problems.empty()) throw ConfigError(problems);
  config.model.seq_len = flags.seq_len;
  config.batch.sequences = flags.batch;
  if (flags.micro > 0) config.batch.micro = flags.micro;
  config.train.tokens = std::int64_t{1} << 40;
  return config;
}

nlohmann::json as_json(const StepFlags& flags, const StepBench& bench) {
  nlohmann::json parts = nlohmann::json::array();
  for (const StepPart& part : bench.parts) {
    parts.push_back({{"name", part.name},
                     {"seconds", part.seconds},
                     {"share", part.share},
                     {"rate", part.rate},
                     {"limit", part.limit},
                     {"unit", part.flops ? "FLOP/s" : "B/s"}});
  }
  return {{"model", flags.model},
          {"batch", flags.batch},
          {"seq_len", flags.seq_len},
          {"steps", flags.steps},
          {"tokens_per_second", bench.tokens_per_second},
          {"step_seconds", bench.step_seconds},
          {"fastest_seconds", bench.fastest_seconds},
          {"slowest_seconds", bench.slowest_seconds},
          {"mfu", bench.mfu},
          {"peak_flops", bench.peak_flops},
          {"bandwidth", bench.bandwidth},
          {"planned_memory_bytes", bench.planned_bytes},
          {"peak_memory_bytes", bench.peak_memory_bytes},
          {"parts", std::move(parts)}};
}

void print_table(const StepFlags& flags, const StepBench& bench) {
  fmt::print(
      "{} fp32, batch {} of {} tokens: {:.0f} tokens/s, step {:.3f} s (median of {}; {:.3f} to "
      "{:.3f}), MFU {:.1f} %\n",
      flags.model, flags.batch, flags.seq_len, bench.tokens_per_second, bench.step_seconds,
      flags.steps, bench.fastest_seconds, bench.slowest_seconds, 100.0 * bench.mfu);
  fmt::print(
      "this machine: {:.0f} GFLOP/s in matrix products, {:.1f} GB/s; memory {} planned, {} held at "
      "most\n",
      bench.peak_flops / 1e9, bench.bandwidth / 1e9,
      human_bytes(static_cast<double>(bench.planned_bytes)),
      human_bytes(static_cast<double>(bench.peak_memory_bytes)));
  fmt::print("{:<24}{:>10}{:>8}{:>16}{:>10}\n", "part", "ms", "share", "rate", "of limit");
  for (const StepPart& part : bench.parts) {
    std::string const rate =
        part.limit > 0.0
            ? fmt::format("{:>9.1f} {}{:>9.0f} %", part.rate / 1e9,
                          part.flops ? "GFLOP/s" : "GB/s   ", 100.0 * part.rate / part.limit)
            : "";
    fmt::print("{:<24}{:>10.2f}{:>6.1f} %  {}\n", part.name, 1e3 * part.seconds, 100.0 * part.share,
               rate);
  }
}

void run_step(const StepFlags& flags) {
  Config const config = config_of(flags);
  auto const backend = make_backend(flags.device, flags.threads);
  double const peak = measured_peak_flops(*backend), bandwidth = measured_bandwidth(*backend);
  StepBench const bench = bench_step(config, *backend, flags.steps, peak, bandwidth);
  if (flags.json) {
    fmt::print("{}\n", as_json(flags, bench).dump(2));
  } else {
    print_table(flags, bench);
  }
}

void add_step(CLI::App& bench) {
  auto flags = std::make_shared<StepFlags>();
  CLI::App* command =
      bench.add_subcommand("step", "One training step on made-up tokens, whole and by part");
  command->add_option("--model", flags->model, "A preset of docs/configuration.md")
      ->capture_default_str();
  command->add_option("--batch", flags->batch, "Sequences a step")
      ->capture_default_str()
      ->check(whole_from(1));
  command->add_option("--seq-len", flags->seq_len, "Tokens a sequence")
      ->capture_default_str()
      ->check(whole_from(1));
  command->add_option("--micro", flags->micro, "Sequences a micro-batch; chosen when not given")
      ->check(whole_from(1));
  command->add_option("--precision", flags->precision, "fp32")->capture_default_str();
  command->add_option("--threads", flags->threads, "CPU threads; 0: all this process may run on")
      ->capture_default_str()
      ->check(whole_from(0));
  command->add_option("--steps", flags->steps, "Steps to take the median of")
      ->capture_default_str()
      ->check(whole_from(1));
  add_device_option(*command, flags->device);
  command->add_flag("--json", flags->json, "One JSON document on stdout");
  command->footer(
      "Example:\n  copus bench step --model gpt2-124m --batch 4 --seq-len 256 --threads 2");
  command->callback([flags] { run_step(*flags); });
}

struct OpsFlags {
  int threads = 0, repeats = 20;
  DeviceChoice device = DeviceChoice::automatic;
  bool json = false;
};

void run_ops(const OpsFlags& flags) {
  auto const backend = make_backend(flags.device, flags.threads);
  double const peak = measured_peak_flops(*backend), bandwidth = measured_bandwidth(*backend);
  nlohmann::json list = nlohmann::json::array();
  if (!flags.json) {
    fmt::print("{}: {:.0f} GFLOP/s in matrix products, {:.1f} GB/s\n", backend->name(), peak / 1e9,
               bandwidth / 1e9);
    fmt::print("{:<44}{:>10}{:>16}{:>10}\n", "operation", "ms", "rate", "of limit");
  }
  for (const OpRate& op : bench_ops(*backend, flags.repeats)) {
    bool const flops = op.flops > 0.0;
    double const limit = flops ? peak : bandwidth;
    if (flags.json) {
      list.push_back({{"name", op.name},
                      {"seconds", op.seconds},
                      {"rate", op.rate()},
                      {"limit", limit},
                      {"unit", flops ? "FLOP/s" : "B/s"}});
    } else {
      fmt::print("{:<44}{:>10.3f}{:>9.1f} {}{:>8.0f} %\n", op.name, 1e3 * op.seconds,
                 op.rate() / 1e9, flops ? "GFLOP/s" : "GB/s   ", 100.0 * op.rate() / limit);
    }
  }
  if (flags.json) {
    fmt::print("{}\n", nlohmann::json{{"backend", backend->name()},
                                      {"peak_flops", peak},
                                      {"bandwidth", bandwidth},
                                      {"ops", std::move(list)}}
                           .dump(2));
  }
}

void add_ops(CLI::App& bench) {
  auto flags = std::make_shared<OpsFlags>();
  CLI::App* command = bench.add_subcommand(
      "ops", "Every operation at the sizes of a GPT-2 124M step of 1,024 tokens");
  command->add_option("--threads", flags->threads, "CPU threads; 0: all this process may run on")
      ->capture_default_str()
      ->check(whole_from(0));
  command->add_option("--repeats", flags->repeats, "Runs of each, the fastest counts")
      ->capture_default_str()
      ->check(whole_from(1));
  add_device_option(*command, flags->device);
  command->add_flag("--json", flags->json, "One JSON document on stdout");
  command->footer("Example:\n  copus bench ops --threads 2");
  command->callback([flags] { run_ops(*flags); });
}

}  // namespace

void add_bench(CLI::App& app) {
  CLI::App* bench = app.add_subcommand("bench", "Measure this machine");
  bench->require_subcommand(1);
  bench->footer("Example:\n  copus bench step --model gpt2-124m --batch 4 --seq-len 256");
  add_ops(*bench);
  add_step(*bench);
}

}  // namespace copus
