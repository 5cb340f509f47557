// copus bench step: one training step in any layout, whole and by part.
#include <fmt/format.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/bench.h"
#include "cli/number_checks.h"
#include "cli/say.h"
#include "copus/core/config_io.h"
#include "copus/core/error.h"
#include "copus/core/printable.h"
#include "copus/core/units.h"
#include "copus/train/rank_peak.h"
#include "copus/train/resolve.h"
#include "copus/train/step_bench.h"
#include "train/saved_step.h"

namespace copus {
namespace {

struct BenchStepFlags {
  ModelFlags model;
  RankFlags rank;
  ParallelConfig parallel;
  std::string out, vs;
  Precision precision = Precision::fp32;
  int steps = 5;
  std::int64_t noise_every = 0;
};

Config config_of(const BenchStepFlags& flags) {
  std::vector<std::string> problems;
  Config config = config_of(flags.model, problems);
  config.train.precision = flags.precision;
  config.train.emulate_bf16 = flags.rank.emulate_bf16;
  if (!problems.empty()) throw ConfigError(problems);
  config.parallel = flags.parallel;
  if (flags.noise_every > 0) {
    config.adapt.mode = AdaptMode::log;
  }
  return config;
}

nlohmann::json as_json(const Spread& spread) {
  return {{"min", spread.min}, {"median", spread.median}, {"max", spread.max}};
}

nlohmann::json as_json(const std::vector<StepPart>& parts) {
  nlohmann::json list = nlohmann::json::array();
  for (const StepPart& part : parts) {
    list.push_back({{"name", part.name},
                    {"seconds", part.seconds},
                    {"share", part.share},
                    {"rate", part.rate},
                    {"limit", part.limit},
                    {"unit", part.flops ? "FLOP/s" : "B/s"}});
  }
  return list;
}

nlohmann::json as_json(const std::vector<StepGroup>& groups) {
  nlohmann::json list = nlohmann::json::array();
  for (const StepGroup& group : groups) {
    list.push_back({{"name", group.name},
                    {"ranks", group.ranks},
                    {"seconds", group.traffic.seconds},
                    {"bus_bytes", group.traffic.bus_bytes},
                    {"bus_bandwidth", group.traffic.bus_bandwidth()}});
  }
  return list;
}

// The share of a run's time, by the operations that measuring adds.
double noise_share(const NoiseScaleCost& cost, double step_seconds, std::int64_t every) {
  return cost.added_seconds / (step_seconds * static_cast<double>(every));
}

nlohmann::json as_json(const NoiseScaleCost& cost, double step_seconds, std::int64_t every) {
  return {{"every_steps", every},
          {"measuring_step_seconds", cost.measuring_seconds},
          {"paired_ratio", cost.paired_ratio},
          {"added_seconds", cost.added_seconds},
          {"share", noise_share(cost, step_seconds, every)}};
}

nlohmann::json as_json(const BenchStepFlags& flags, const BenchRank& rank, const Layout& layout,
                       const StepBench& bench) {
  nlohmann::json noise;
  if (bench.noise_scale) noise = as_json(*bench.noise_scale, bench.step_seconds, flags.noise_every);
  nlohmann::json result = {
      {"model", flags.model.model},
      {"noise_scale", noise},
      {"precision", std::string(name_of(flags.precision))},
      {"emulate_bf16", flags.rank.emulate_bf16},
      {"recompute", name_of(flags.parallel.recompute.value_or(Recompute::none))},
      {"batch", flags.model.batch},
      {"micro_batch", bench.micro},
      {"seq_len", flags.model.seq_len},
      {"steps", flags.steps},
      {"transport", rank.world.transport()},
      {"ranks", layout.world()},
      {"threads", rank.threads},
      {"layout", copus::as_json(layout)},
      {"tokens_per_second", bench.tokens_per_second},
      {"step_seconds", bench.step_seconds},
      {"fastest_seconds", bench.fastest_seconds},
      {"slowest_seconds", bench.slowest_seconds},
      {"mfu", bench.mfu},
      {"device", rank.device.on_gpu ? rank.device.words : rank.backend.name()},
      {"peak_flops", bench.peak_flops},
      {"measured_flops", bench.measured_flops},
      {"bandwidth", bench.bandwidth},
      {"planned_memory_bytes", bench.planned_bytes},
      {"peak_memory_bytes", bench.peak_memory_bytes},
      {"compute_seconds", as_json(bench.compute)},
      {"communication_seconds", as_json(bench.communication)},
      {"groups", as_json(bench.groups)},
      {"parts", as_json(bench.parts)}};
  if (bench.issue_seconds) result["issue_seconds"] = *bench.issue_seconds;
  return result;
}

void print_groups(const StepBench& bench) {
  auto const words = [](const Spread& s) {
    return fmt::format("{:.3f} to {:.3f} s", s.min, s.max);
  };
  fmt::print("over ranks, up to the norm: {} computing, {} waiting for communication\n",
             words(bench.compute), words(bench.communication));
  for (const StepGroup& group : bench.groups) {
    fmt::print("{} of {} ranks: {:.1f} ms a step in its collectives, {:.2f} GB/s of bus\n",
               group.name, group.ranks, 1e3 * group.traffic.seconds,
               group.traffic.bus_bandwidth() / 1e9);
  }
}

void print_noise(const NoiseScaleCost& cost, double step_seconds, std::int64_t every) {
  fmt::print(
      "noise scale: {:.1f} ms of operations in a step that measures it, {:.2f} % of the time at "
      "every {} steps; such steps took {:.3f} of their neighbours' time (median)\n",
      1e3 * cost.added_seconds, 100.0 * noise_share(cost, step_seconds, every), every,
      cost.paired_ratio);
}

void print_ratios(const StepRatios& ratios, const StepBench& bench) {
  fmt::print("\nagainst {}: {:.3f} times as many tokens/s\n", ratios.file, ratios.total);
  for (const std::string& difference : ratios.differences)
    fmt::print("  {}\n", printable_line(difference));
  fmt::print("{:<24}{:>16}\n", "part", "times as fast");
  for (const StepPart& part : bench.parts) {
    auto const found = ratios.parts.find(part.name);
    if (found != ratios.parts.end()) fmt::print("{:<24}{:>16.2f}\n", part.name, found->second);
  }
  if (!ratios.only_here.empty()) fmt::print("not there: {}\n", fmt::join(ratios.only_here, ", "));
  if (!ratios.only_there.empty())
    fmt::print("only there: {}\n",
               printable_line(fmt::format("{}", fmt::join(ratios.only_there, ", "))));
}

std::string rate_of(const StepPart& part) {
  if (part.rate <= 0.0) return "";
  std::string const text =
      fmt::format("{:>9.1f} {}", part.rate / 1e9, part.flops ? "GFLOP/s" : "GB/s   ");
  if (part.limit <= 0.0) return text;
  return text + fmt::format("{:>9.0f} %", 100.0 * part.rate / part.limit);
}

void print_table(const BenchStepFlags& flags, const BenchRank& rank, const Layout& layout,
                 const StepBench& bench) {
  fmt::print(
      "{} {}, batch {} of {} tokens in micro-batches of {}: {:.0f} tokens/s, step {:.3f} s "
      "(median of {}; {:.3f} to {:.3f}), MFU {:.1f} %\n",
      flags.model.model, name_of(flags.precision), flags.model.batch, flags.model.seq_len,
      bench.micro, bench.tokens_per_second, bench.step_seconds, flags.steps, bench.fastest_seconds,
      bench.slowest_seconds, 100.0 * bench.mfu);
  fmt::print("{}: {} ranks of {} threads over {}\n", to_string(layout), layout.world(),
             rank.threads, rank.world.transport());
  fmt::print("measured: {:.0f} GFLOP/s in matrix products, {:.1f} GB/s\n",
             bench.measured_flops / 1e9, bench.bandwidth / 1e9);
  fmt::print("memory: {} planned for rank 0, {} held by its process at most\n",
             human_bytes(static_cast<double>(bench.planned_bytes)),
             human_bytes(static_cast<double>(bench.peak_memory_bytes)));
  if (bench.issue_seconds) {
    fmt::print("host: {:.2f} ms of a step to issue its work, {:.1f} % of its time\n",
               1e3 * *bench.issue_seconds, 100.0 * *bench.issue_seconds / bench.step_seconds);
  }
  if (layout.world() > 1) print_groups(bench);
  if (bench.noise_scale) print_noise(*bench.noise_scale, bench.step_seconds, flags.noise_every);
  fmt::print("{:<24}{:>10}{:>8}{:>16}{:>10}\n", "part", "ms", "share", "rate", "of limit");
  for (const StepPart& part : bench.parts) {
    fmt::print("{:<24}{:>10.2f}{:>6.1f} %  {}\n", part.name, 1e3 * part.seconds, 100.0 * part.share,
               rate_of(part));
  }
}

void run_step(const BenchStepFlags& flags) {
  Config const config = config_of(flags);
  check_out(flags.out);
  nlohmann::json const saved = flags.vs.empty() ? nlohmann::json() : read_saved_step(flags.vs);
  on_ranks(flags.rank, [&](const BenchRank& rank) {
    Layout const layout = resolve_layout(config, rank.world.size());
    if (rank.leads() && layout.world() < rank.world.size()) {
      say_warning(fmt::format("{} of {} ranks are idle: the layout is {}",
                              rank.world.size() - layout.world(), rank.world.size(),
                              to_string(layout)));
    }
    std::string const problem = precision_problem(config, rank.device.gpu_facts());
    if (!problem.empty()) throw ConfigError(problem);
    StepBench const bench = bench_step(config, rank.world, layout, rank.backend, flags.steps,
                                       listed_peak_flops(rank.device, flags.precision));
    if (!flags.out.empty())
      write_profile(flags.out, "step", rank, bench.measured_flops / layout.world(), flags.precision,
                    {});
    if (!rank.leads()) return;
    nlohmann::json result = as_json(flags, rank, layout, bench);
    std::optional<StepRatios> ratios;
    if (!flags.vs.empty()) ratios = compare_steps(flags.vs, saved, result);
    if (flags.rank.json) {
      if (ratios)
        result["vs"] = {{"file", ratios->file},
                        {"tokens_per_second", ratios->total},
                        {"parts", ratios->parts},
                        {"only_here", ratios->only_here},
                        {"only_there", ratios->only_there},
                        {"differences", ratios->differences}};
      fmt::print("{}\n", result.dump(2));
    } else {
      print_table(flags, rank, layout, bench);
      if (ratios) print_ratios(*ratios, bench);
    }
  });
}

void add_layout_options(CLI::App& command, ParallelConfig& parallel) {
  auto const axis = [&](const char* name, std::optional<int>& value, const char* help) {
    command.add_option(name, value, help)->check(whole_from(1));
  };
  axis("--dp", parallel.dp, "Data-parallel ranks; what tp and pp leave when not given");
  axis("--tp", parallel.tp, "Tensor-parallel ranks; 1 when not given");
  axis("--pp", parallel.pp, "Pipeline stages; 1 when not given");
  axis("--virtual-stages", parallel.virtual_stages, "Chunks of layers a stage; 1 when not given");
  command.add_option("--zero", parallel.zero, "ZeRO stage, 0 or 1; 0 when not given")
      ->check(CLI::Range(0, 1));
  command.add_flag_callback(
      "--sequence-parallel", [&parallel] { parallel.sequence_parallel = true; },
      "Split norms and dropout over the tensor-parallel ranks' sequences");
  std::map<std::string, Recompute> const names{
      {"none", Recompute::none}, {"selective", Recompute::selective}, {"full", Recompute::full}};
  command
      .add_option("--recompute", parallel.recompute,
                  "Activations made again in the backward: none, selective or full")
      ->transform(CLI::CheckedTransformer(names));
}

}  // namespace

void add_bench_step(CLI::App& bench) {
  auto flags = std::make_shared<BenchStepFlags>();
  CLI::App* command =
      bench.add_subcommand("step", "One training step on made-up tokens, whole and by part");
  add_model_options(*command, flags->model);
  std::map<std::string, Precision> const precisions{{"fp32", Precision::fp32},
                                                    {"bf16", Precision::bf16}};
  command->add_option("--precision", flags->precision, "fp32 or bf16; fp32 when not given")
      ->transform(CLI::CheckedTransformer(precisions));
  command->add_flag("--emulate-bf16", flags->rank.emulate_bf16,
                    "Make bf16 products of fp32 ones, also on a CPU that has its own");
  add_rank_options(*command, flags->rank);
  add_layout_options(*command, flags->parallel);
  command
      ->add_option("--noise-scale", flags->noise_every,
                   "Also show what measuring the noise scale costs at every so many steps, from "
                   "steps with and without in turn; 0: no")
      ->capture_default_str()
      ->check(whole_from(0));
  command->add_option("--steps", flags->steps, "Steps to take the median of")
      ->capture_default_str()
      ->check(whole_from(1));
  add_out_option(*command, flags->out);
  command->add_option("--vs", flags->vs,
                      "A saved --json result: how many times as fast each part is now");
  command->footer(
      "Example:\n  copus bench step --model gpt2-124m --batch 4 --seq-len 256 --threads 2\n"
      "  copus bench step --ranks 2 --dp 2 --zero 1");
  command->callback([flags] { run_step(*flags); });
}

}  // namespace copus
