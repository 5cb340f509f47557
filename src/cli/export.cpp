// copus export: a checkpoint becomes a Hugging Face model.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "cli/commands.h"
#include "copus/core/config_io.h"
#include "copus/state/checkpoint.h"

namespace copus {
namespace {

struct ExportFlags {
  std::string checkpoint, out, dtype = "fp32";
};

void run_export(const ExportFlags& flags) {
  DType const dtype = flags.dtype == "bf16" ? DType::bf16 : DType::f32;
  CheckpointSummary const done = export_checkpoint(flags.checkpoint, flags.out, dtype);
  const ModelConfig& m = done.model;
  fmt::print("{}: {}, {} layers, hidden {}, vocab {}; {} parameters as {}, {} bytes\n", flags.out,
             name_of(m.family), m.layers, m.hidden, m.vocab, parameter_count(m), flags.dtype,
             done.bytes);
}

}  // namespace

void add_export(CLI::App& app) {
  auto flags = std::make_shared<ExportFlags>();
  CLI::App* command =
      app.add_subcommand("export", "Turn a checkpoint into a Hugging Face model directory");
  command
      ->add_option("checkpoint", flags->checkpoint,
                   "A checkpoint (or a Hugging Face directory, to change its type)")
      ->required();
  command->add_option("--out", flags->out, "The directory to create")->required();
  command
      ->add_option("--dtype", flags->dtype,
                   "fp32: the weights bit for bit; bf16: each to the nearest, ties to even")
      ->check(CLI::IsMember({"fp32", "bf16"}))
      ->capture_default_str();
  command->footer(
      "Example:\n  copus export runs/quickstart/checkpoints/latest --out kjv-hf --dtype bf16");
  command->callback([flags] { run_export(*flags); });
}

}  // namespace copus
