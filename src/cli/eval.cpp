// copus eval: the loss of a checkpoint on a data set.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/commands.h"
#include "cli/device_option.h"
#include "cli/launch.h"
#include "cli/number_checks.h"
#include "copus/comm/rank_device.h"
#include "copus/comm/vote.h"
#include "copus/core/error.h"
#include "copus/core/log.h"
#include "copus/core/printable.h"
#include "copus/core/units.h"
#include "copus/state/checkpoint.h"
#include "copus/state/hf.h"
#include "copus/train/evaluator.h"

namespace copus {
namespace {

struct EvalFlags {
  std::string checkpoint, data;
  std::int64_t seq_len = 0;
  std::optional<int> ranks;
  int threads = 0;
  DeviceChoice device = DeviceChoice::automatic;
  TransportChoice transport = TransportChoice::automatic;
  bool json = false;
};

void print_result(const EvalRecord& result, bool json) {
  if (json) {
    fmt::print("{}\n", nlohmann::json{{"loss", result.loss},
                                      {"perplexity", std::exp(result.loss)},
                                      {"tokens", result.tokens}}
                           .dump());
  } else {
    fmt::print("loss {:.6f} nats a token, perplexity {:.4f}, over {} tokens\n", result.loss,
               std::exp(result.loss), result.tokens);
  }
}

ModelConfig model_of(const EvalFlags& flags) {
  check_small_files(flags.checkpoint);
  ModelConfig model = read_hf_config(flags.checkpoint);
  if (flags.seq_len == 0) return model;
  if (flags.seq_len > model.max_positions) {
    throw ConfigError(fmt::format("--seq-len {}: the model of {} takes at most {}", flags.seq_len,
                                  flags.checkpoint, model.max_positions));
  }
  model.seq_len = flags.seq_len;
  return model;
}

// Another tokenizer's ids mean other text: their loss would be that of noise.
void require_same_tokenizer(const EvalFlags& flags, const std::string& of_data) {
  std::string const of_model = tokenizer_of(flags.checkpoint);
  if (of_model.empty() || of_model == of_data) return;
  throw ConfigError(fmt::format("--data {}: tokenizer \"{}\" is not accepted; {} has \"{}\"",
                                flags.data, printable_line(of_data), flags.checkpoint,
                                printable_line(of_model)));
}

void evaluate_on(Communicator& world, const RankShare& share, const EvalFlags& flags) {
  bool const leads = world.rank() == 0;
  Log log(world.rank(), leads);
  ModelConfig model;
  std::optional<EvalSet> data;
  std::vector<std::string> mistakes;
  try {
    model = model_of(flags);
    data.emplace(std::vector<DataSource>{{flags.data, 1.0}}, model.seq_len, model.vocab, 0, "",
                 log);
    if (data->tokens() == 0)
      throw ConfigError(fmt::format("--data {}: holds no token to predict", flags.data));
    require_same_tokenizer(flags, data->summary().front().tokenizer);
  } catch (const ConfigError& e) {
    mistakes = e.problems();
  }
  // world: which device each takes, and by what way tensors go between them.
  RankDevice const device =
      choose_device(world, {flags.device, flags.transport, share.local_rank, true}, cuda_facts());
  mistakes.insert(mistakes.end(), device.problems.begin(), device.problems.end());
  if (!agreed(world, mistakes)) throw ConfigError(std::vector<std::string>{});
  for (const std::string& note : device.notes) log.info(note);
  auto const backend = make_backend(device, share.threads);
  auto const ranks = join_devices(world, device, *backend);
  EvalRecord const result =
      evaluate_checkpoint(flags.checkpoint, model, *data, *ranks, *backend, leads ? &log : nullptr);
  if (leads) print_result(result, flags.json);
}

void run_eval(const EvalFlags& flags) {
  launch(flags.ranks, flags.threads,
         [&](Communicator& world, const RankShare& share) { evaluate_on(world, share, flags); });
}

}  // namespace

void add_eval(CLI::App& app) {
  auto flags = std::make_shared<EvalFlags>();
  CLI::App* command =
      app.add_subcommand("eval", "Mean loss of a checkpoint over every token of a data set");
  command->add_option("checkpoint", flags->checkpoint, "A checkpoint or Hugging Face directory")
      ->required();
  command->add_option("--data", flags->data, "A directory of token shards, or one shard")
      ->required();
  command
      ->add_option("--seq-len", flags->seq_len,
                   "Tokens a window; the model's maximum when not given")
      ->check(whole_from(1));
  command
      ->add_option("--ranks", flags->ranks,
                   "Ranks that share out the windows, as threads of this process; 1 when not given")
      ->check(whole_from(1));
  command
      ->add_option("--threads", flags->threads,
                   "CPU threads of a rank; 0: its share of those this process may run on")
      ->default_val(0)
      ->check(whole_from(0));
  add_device_option(*command, flags->device);
  add_transport_option(*command, flags->transport);
  command->add_flag("--json", flags->json, "One JSON document on stdout");
  command->footer(
      "Under mpirun, or with --ranks, each rank holds the whole model and takes its share of the "
      "windows.\n"
      "Example:\n  copus eval runs/quickstart/checkpoints/latest --data data/kjv --seq-len 256 "
      "--json");
  command->callback([flags] { run_eval(*flags); });
}

}  // namespace copus
