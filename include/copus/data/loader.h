// Samples by number: sample i of a run is a pure function of (data, seed, i), whoever asks.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "copus/core/config.h"

namespace copus {

class Log;

// What the start-up table shows of one source.
struct SourceSummary {
  std::string path;
  int shards = 0;
  std::int64_t tokens = 0, documents = 0, windows = 0;
  double weight = 1.0;
  std::string tokenizer;  // id, as in the shards' headers
};

// A data set is the concatenation of its shards in name order (n tokens in all): window i is its
// tokens [i T, i T + T], across shard boundaries too, and an epoch has (n - 1) / T full windows.
//
// Training data: windows of seq_len + 1 tokens. The position of a run is one integer, the samples
// consumed.
class Loader {
 public:
  // Opens every shard (checked). Collects all mistakes: missing paths, vocabulary or tokenizer that
  // differ from each other or exceed `vocab`, no full window. Shards without tokens are skipped
  // with a warning when others have some.
  Loader(const DataConfig& data, std::int64_t seq_len, std::int64_t vocab, std::uint64_t seed,
         Log& log);
  ~Loader();
  Loader(Loader&&) noexcept;

  // Sample `index` (>= 0, counted over all epochs): seq_len inputs, and the seq_len targets one
  // further.
  void sample(std::int64_t index, std::span<std::int32_t> inputs,
              std::span<std::int32_t> targets) const;
  // Windows in one pass over everything; the epoch of sample `index` (of the first source, when
  // weighted).
  std::int64_t windows() const;
  std::int64_t epoch_of(std::int64_t index) const;
  // Samples a run may draw: data.epochs x windows, or -1 when unlimited.
  std::int64_t limit() const;
  const std::vector<SourceSummary>& summary() const;
  // Of the shards' checksums, in their order, and the sources' weights. Never 0.
  std::uint64_t identity() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Evaluation data, in file order: every one of the n - 1 predictions of each data set, the last
// window padded and masked.
class EvalSet {
 public:
  // `tokens` > 0 stops after that many predictions; 0: all. An empty source list gives an empty
  // set.
  EvalSet(const std::vector<DataSource>& sources, std::int64_t seq_len, std::int64_t vocab,
          std::int64_t tokens, const std::string& prefix,
          Log& log);  // prefix: "val-", or "" for every shard in a directory
  ~EvalSet();
  EvalSet(EvalSet&&) noexcept;

  std::int64_t windows() const;
  std::int64_t tokens() const;  // loss-bearing
  // Window `index`; masked targets are -1 and their inputs 0.
  void window(std::int64_t index, std::span<std::int32_t> inputs,
              std::span<std::int32_t> targets) const;
  const std::vector<SourceSummary>& summary() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace copus
