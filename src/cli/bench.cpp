// copus bench: what this machine reaches; the flags that its measurements share.
#include "cli/bench.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/device_option.h"
#include "cli/launch.h"
#include "cli/number_checks.h"
#include "copus/comm/vote.h"
#include "copus/core/config_io.h"
#include "copus/core/console.h"
#include "copus/core/error.h"

namespace copus {

void add_bench(CLI::App& app) {
  CLI::App* bench = app.add_subcommand("bench", "Measure this machine");
  bench->require_subcommand(1);
  bench->footer("Example:\n  copus bench step --model gpt2-124m --batch 4 --seq-len 256");
  add_bench_ops(*bench);
  add_bench_comm(*bench);
  add_bench_step(*bench);
  add_bench_switch(*bench);
}

void add_rank_options(CLI::App& command, RankFlags& flags) {
  command
      .add_option("--ranks", flags.ranks,
                  fmt::format("Ranks to run as threads of this process; {} when not given",
                              flags.ranks_alone))
      ->check(whole_from(1));
  command
      .add_option("--threads", flags.threads,
                  "CPU threads of a rank; 0: its share of all that this process may run on")
      ->capture_default_str()
      ->check(whole_from(0));
  add_device_option(command, flags.device);
  add_transport_option(command, flags.transport);
  command.add_flag("--json", flags.json, "One JSON document on stdout");
}

void on_ranks(const RankFlags& flags, const std::function<void(const BenchRank&)>& body) {
  auto const run = [&](Communicator& world, const RankShare& share) {
    // world: which device each takes, and by what way tensors go between them.
    RankDevice const device =
        choose_device(world, {flags.device, flags.transport, share.local_rank, true}, cuda_facts());
    if (!agreed(world, device.problems)) throw ConfigError(std::vector<std::string>{});
    if (world.rank() == 0) {
      for (const std::string& note : device.notes)
        standard_error().write(fmt::format("note: {}\n", note));
    }
    auto const backend = make_backend(device, share.threads, flags.emulate_bf16);
    auto const ranks = join_devices(world, device, *backend);
    body({*ranks, *backend, device, share.threads});
  };
  auto const run_or_leave_telling = [&](Communicator& world, const RankShare& share) {
    try {
      run(world, share);
    } catch (const ConfigError&) {
      if (world.rank() == 0) throw;
      throw ConfigError(std::vector<std::string>{});
    }
  };
  launch(flags.ranks, flags.threads, run_or_leave_telling, flags.ranks_alone);
}

void add_model_options(CLI::App& command, ModelFlags& flags) {
  command.add_option("--model", flags.model, "A preset of docs/configuration.md")
      ->capture_default_str();
  command.add_option("--batch", flags.batch, "Sequences a step, of all ranks together")
      ->capture_default_str()
      ->check(whole_from(1));
  command.add_option("--seq-len", flags.seq_len, "Tokens a sequence")
      ->capture_default_str()
      ->check(whole_from(1));
  command.add_option("--micro", flags.micro, "Sequences a micro-batch; chosen when not given")
      ->check(whole_from(1));
}

Config config_of(const ModelFlags& flags, std::vector<std::string>& problems) {
  Config config;
  try {
    config.model = model_preset(flags.model);
    if (flags.seq_len > config.model.max_positions) {
      problems.push_back(fmt::format("--seq-len {}: {} takes at most {}", flags.seq_len,
                                     flags.model, config.model.max_positions));
    }
  } catch (const ConfigError& e) {
    problems = e.problems();
  }
  if (flags.micro > 0 && flags.batch % flags.micro != 0) {
    problems.push_back(
        fmt::format("--micro {}: does not divide --batch {}", flags.micro, flags.batch));
  }
  config.model.seq_len = flags.seq_len;
  config.batch.sequences = flags.batch;
  if (flags.micro > 0) config.batch.micro = flags.micro;
  config.train.tokens = std::int64_t{1} << 40;
  return config;
}

nlohmann::json as_json(const Layout& layout) {
  return {{"dp", layout.dp},     {"tp", layout.tp},
          {"pp", layout.pp},     {"virtual_stages", layout.virtual_stages},
          {"zero", layout.zero}, {"sequence_parallel", layout.sequence_parallel}};
}

}  // namespace copus
