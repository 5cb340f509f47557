// copus import: a Hugging Face model becomes a checkpoint.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "cli/commands.h"
#include "copus/core/config_io.h"
#include "copus/state/checkpoint.h"

namespace copus {
namespace {

struct ImportFlags {
  std::string source, out;
};

void run_import(const ImportFlags& flags) {
  CheckpointSummary const done = import_checkpoint(flags.source, flags.out);
  const ModelConfig& m = done.model;
  fmt::print(
      "{}: {}, {} layers, hidden {}, {} heads ({} kv), ffn {}, vocab {}, up to {} positions; {} "
      "parameters, {} bytes\n",
      flags.out, name_of(m.family), m.layers, m.hidden, m.heads, m.kv_heads, m.ffn, m.vocab,
      m.max_positions, parameter_count(m), done.bytes);
}

}  // namespace

void add_import(CLI::App& app) {
  auto flags = std::make_shared<ImportFlags>();
  CLI::App* command = app.add_subcommand(
      "import",
      "Turn a Hugging Face model (Llama, Qwen2 or GPT-2 in safetensors) into a checkpoint");
  command
      ->add_option("hf_dir", flags->source,
                   "A directory with config.json and model.safetensors (or its index and parts)")
      ->required();
  command->add_option("--out", flags->out, "The checkpoint directory to create")->required();
  command->footer("Example:\n  copus import ~/models/Llama-3.2-1B --out checkpoints/llama-3.2-1b");
  command->callback([flags] { run_import(*flags); });
}

}  // namespace copus
