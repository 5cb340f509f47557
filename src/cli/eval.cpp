// copus eval: the loss of a checkpoint on a data set.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/device_option.h"
#include "cli/number_checks.h"
#include "copus/backend/make_backend.h"
#include "copus/core/error.h"
#include "copus/core/log.h"
#include "copus/core/units.h"
#include "copus/state/hf.h"
#include "copus/train/evaluator.h"

namespace copus {
namespace {

struct EvalFlags {
  std::string checkpoint, data;
  std::int64_t seq_len = 0;
  int threads = 0;
  DeviceChoice device = DeviceChoice::automatic;
  bool json = false;
};

void run_eval(const EvalFlags& flags) {
  ModelConfig model = read_hf_config(flags.checkpoint);
  if (flags.seq_len > 0) {
    if (flags.seq_len > model.max_positions) {
      throw ConfigError(fmt::format("--seq-len {}: the model of {} takes at most {}", flags.seq_len,
                                    flags.checkpoint, model.max_positions));
    }
    model.seq_len = flags.seq_len;
  }
  Log log;
  EvalSet const data({{flags.data, 1.0}}, model.seq_len, model.vocab, 0, "", log);
  if (data.tokens() == 0)
    throw ConfigError(fmt::format("--data {}: holds no token to predict", flags.data));
  auto const backend = make_backend(flags.device, flags.threads);
  EvalRecord const result = evaluate_checkpoint(flags.checkpoint, model, data, *backend, log);
  if (flags.json) {
    fmt::print("{}\n", nlohmann::json{{"loss", result.loss},
                                      {"perplexity", std::exp(result.loss)},
                                      {"tokens", result.tokens}}
                           .dump());
  } else {
    fmt::print("loss {:.6f} nats a token, perplexity {:.4f}, over {} tokens\n", result.loss,
               std::exp(result.loss), result.tokens);
  }
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
  command->add_option("--threads", flags->threads, "CPU threads; 0: all this process may run on")
      ->default_val(0)
      ->check(whole_from(0));
  add_device_option(*command, flags->device);
  command->add_flag("--json", flags->json, "One JSON document on stdout");
  command->footer(
      "Example:\n  copus eval runs/quickstart/checkpoints/latest --data data/kjv --seq-len 256 "
      "--json");
  command->callback([flags] { run_eval(*flags); });
}

}  // namespace copus
