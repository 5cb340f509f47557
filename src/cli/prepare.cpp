#include "copus/data/prepare.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "copus/core/config_io.h"
#include "copus/core/log.h"

namespace copus {

void add_prepare(CLI::App& app) {
  CLI::App* const command =
      app.add_subcommand("prepare", "Turn text files into token shards for training");
  auto const options = std::make_shared<PrepareOptions>();
  auto const shard_tokens = std::make_shared<std::string>("100M");
  command->add_option("--tokenizer", options->tokenizer, "\"bytes\": ids 0-255 and an end of text")
      ->required();
  command->add_option("--out", options->out, "directory for train-*.bin and val-*.bin")->required();
  command->add_option("--val-fraction", options->val_fraction,
                      "share of the text to set apart as val-*.bin (0 to 0.5): whole documents, or "
                      "the end of the text when there are fewer than 20 documents");
  command->add_option("--shard-tokens", *shard_tokens, "most tokens in a shard (K, M, B)")
      ->capture_default_str();
  command->add_option("--threads", options->threads,
                      "0: one a core; the shards do not depend on it");
  command->add_flag("--force", options->force, "replace the shards that are in the directory");
  command
      ->add_option("files", options->files,
                   "text files: plain (one document each), .jsonl (a \"text\" a line), or .gz "
                   "of both")
      ->required();
  command->footer(
      "Example:\n  copus prepare --tokenizer bytes --out data --val-fraction 0.01 book.txt "
      "pages.jsonl.gz");
  command->callback([options, shard_tokens] {
    options->shard_tokens = parse_count(*shard_tokens, "--shard-tokens");
    Log log;
    PrepareSummary const summary = prepare(*options, log);
    std::fputs(to_text(summary).c_str(), stdout);
  });
}

}  // namespace copus
