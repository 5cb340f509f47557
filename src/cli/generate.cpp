// copus generate: text that goes on from a prompt.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "cli/commands.h"
#include "cli/device_option.h"
#include "cli/number_checks.h"
#include "copus/backend/make_backend.h"
#include "copus/core/config_io.h"
#include "copus/core/error.h"
#include "copus/core/printable.h"
#include "copus/core/rng.h"
#include "copus/data/tokenizer.h"
#include "copus/state/checkpoint.h"
#include "copus/state/hf.h"
#include "copus/train/generator.h"

namespace copus {
namespace {

struct GenerateFlags {
  std::string checkpoint, prompt, tokens = "100", tokenizer;
  SampleOptions sample;
  std::uint64_t seed = 1;
  int threads = 0;
  DeviceChoice device = DeviceChoice::automatic;
};

// The tokenizer that the model was trained with, as far as the checkpoint says.
std::string tokenizer_name(const GenerateFlags& flags) {
  if (!flags.tokenizer.empty()) return flags.tokenizer;
  namespace fs = std::filesystem;
  std::string const name = tokenizer_of(flags.checkpoint);
  if (!name.empty()) return name;
  std::error_code ignored;
  for (const char* file : {"tokenizer.json", "vocab.json", "tokenizer.model"}) {
    if (fs::exists(flags.checkpoint + "/" + file, ignored)) {
      throw ConfigError(fmt::format(
          "{}: its tokenizer ({}) cannot be used in this version; accepted: checkpoints of models "
          "trained on the \"bytes\" tokenizer",
          flags.checkpoint, file));
    }
  }
  throw ConfigError(
      fmt::format("{}: does not say which tokenizer its ids come from; give --tokenizer bytes if "
                  "they are bytes",
                  flags.checkpoint));
}

void run_generate(const GenerateFlags& flags) {
  check_small_files(flags.checkpoint);
  ModelConfig const model = read_hf_config(flags.checkpoint);
  Tokenizer const tokenizer = open_tokenizer(tokenizer_name(flags));
  std::int64_t const tokens = parse_count(flags.tokens, "--tokens");
  std::vector<std::string> problems;
  if (tokens < 1) problems.push_back("--tokens: 0 is not accepted; it takes 1 or more");
  if (tokenizer.vocab > model.vocab) {
    problems.push_back(fmt::format("{}: the model knows {} ids, its tokenizer \"{}\" has {}",
                                   flags.checkpoint, model.vocab, tokenizer.id, tokenizer.vocab));
  }
  if (!problems.empty()) throw ConfigError(std::move(problems));

  std::vector<std::int32_t> ids;
  encode(tokenizer, flags.prompt, ids);
  // A document begins after the end of another.
  if (ids.empty()) ids.push_back(tokenizer.end_of_text);
  auto const length = static_cast<std::int64_t>(ids.size());
  auto const backend = make_backend(flags.device, flags.threads);
  std::int64_t const context = std::min(
      model.max_positions, tokens < model.max_positions ? length + tokens : model.max_positions);
  Generator generator(flags.checkpoint, model, context, *backend);
  RngStream const stream = stream_of({flags.seed, RngPurpose::sample, 0, 0});
  // A terminal gets text, whatever bytes the model has come to; a file or pipe the bytes.
  bool const terminal = isatty(STDOUT_FILENO) == 1;
  PrintablePieces pieces;
  fmt::print("{}", flags.prompt);
  std::fflush(stdout);
  for (std::int64_t i = 0; i < tokens; ++i) {
    // Ids beyond the tokenizer's (a padded vocabulary) stand for no text.
    auto const logits =
        generator.logits_after(ids).first(static_cast<std::size_t>(tokenizer.vocab));
    std::int32_t const id =
        pick_token(logits, flags.sample, uniform(stream, static_cast<std::uint64_t>(i)));
    if (id == tokenizer.end_of_text) break;
    ids.push_back(id);
    std::string const text = decode(tokenizer, std::span(&id, 1));
    fmt::print("{}", terminal ? pieces.add(text) : text);
    std::fflush(stdout);
  }
  fmt::print("{}\n", pieces.end());
}

}  // namespace

void add_generate(CLI::App& app) {
  auto flags = std::make_shared<GenerateFlags>();
  CLI::App* command = app.add_subcommand(
      "generate", "Go on from a prompt, up to the end of the text or a number of tokens");
  command->add_option("checkpoint", flags->checkpoint, "A checkpoint or Hugging Face directory")
      ->required();
  command
      ->add_option("--prompt", flags->prompt, "The text to go on from; \"\" begins a new document")
      ->required();
  command->add_option("--tokens", flags->tokens, "At most so many tokens (K, M)")
      ->capture_default_str();
  command
      ->add_option("--temperature", flags->sample.temperature,
                   "Logits are divided by it; 0 always takes the likeliest token")
      ->capture_default_str()
      ->check(number_from_zero());
  command
      ->add_option("--top-k", flags->sample.top_k,
                   "Draw among so many of the likeliest tokens; 0: among all")
      ->capture_default_str()
      ->check(whole_from(0));
  command->add_option("--seed", flags->seed, "The same seed draws the same text")
      ->capture_default_str();
  command->add_option("--tokenizer", flags->tokenizer,
                      "\"bytes\", for a model that does not say its tokenizer");
  command->add_option("--threads", flags->threads, "CPU threads; 0: all this process may run on")
      ->default_val(0)
      ->check(whole_from(0));
  add_device_option(*command, flags->device);
  command->footer(
      "The prompt's latest tokens are seen, as many as the model has positions.\n"
      "Example:\n  copus generate runs/quickstart/checkpoints/latest --prompt \"In the beginning "
      "\" "
      "--tokens 200 --temperature 0.8 --top-k 40");
  command->callback([flags] { run_generate(*flags); });
}

}  // namespace copus
