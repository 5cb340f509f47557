// Text files to token shards: what `copus prepare` does.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace copus {

class Log;

struct PrepareOptions {
  std::string tokenizer = "bytes";
  std::string out;                 // directory for train-NNNNN.bin and val-NNNNN.bin
  std::vector<std::string> files;  // plain text: one document; .jsonl: one a line; .gz of both
  double val_fraction = 0;         // 0: no val shards; at most 0.5
  std::int64_t shard_tokens = 100'000'000;  // a shard holds at most so many
  int threads = 0;                          // 0: one a core; changes no byte of the output
  bool force = false;                       // replaces the shards that stand in `out`
};

struct PrepareSummary {
  struct Part {
    int shards = 0;
    std::int64_t tokens = 0, documents = 0;
  };
  Part train, val;
  // documents: every document is in one part; tail: the last tokens of the stream are the val part.
  enum class Split { none, documents, tail } split = Split::none;
  std::int64_t input_bytes = 0, empty_documents = 0;  // empty ones are left out
  double seconds = 0;
};

// Throws ConfigError (all mistakes in the options at once, then all mistakes in the files) or
// IoError; the directory is then as it was. Progress and warnings go to `log`.
PrepareSummary prepare(const PrepareOptions& options, Log& log);

// A table for people.
std::string to_text(const PrepareSummary& summary);

}  // namespace copus
