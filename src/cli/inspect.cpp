// copus inspect: what a checkpoint, a model, a shard or a run holds, and whether it is whole.
#include "cli/inspect.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"

namespace copus {
namespace {

struct InspectFlags {
  std::string path;
  bool json = false;
};

void run_inspect(const InspectFlags& flags) {
  nlohmann::json const document = inspect_path(flags.path);
  // Names in hostile files need not be UTF-8, and must not reach a terminal as its commands: ASCII.
  fmt::print("{}",
             flags.json
                 ? document.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) + "\n"
                 : inspect_table(document));
}

}  // namespace

void add_inspect(CLI::App& app) {
  auto flags = std::make_shared<InspectFlags>();
  CLI::App* command = app.add_subcommand(
      "inspect", "Say what a checkpoint, model, token shard or run holds, and whether it is whole");
  command
      ->add_option(
          "path", flags->path,
          "A checkpoint, a Hugging Face directory, a .safetensors file, a token shard or a "
          "directory of them, or a run directory")
      ->required();
  command->add_flag("--json", flags->json, "One JSON document on stdout");
  command->footer(
      "Every file is read and held against its checksum. A damaged one is described as far as it "
      "goes, with exit code 0: \"complete\" (or \"valid\") in the document says which it is.\n"
      "Example:\n  copus inspect runs/quickstart/checkpoints/latest");
  command->callback([flags] { run_inspect(*flags); });
}

}  // namespace copus
