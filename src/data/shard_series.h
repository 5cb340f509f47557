// One token stream written as numbered shards of bounded size.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "copus/data/prepare.h"
#include "copus/data/tokenizer.h"
#include "copus/data/tokens.h"

namespace copus::detail {

class ShardSeries {
 public:
  // Shards are `folder`/`prefix`NNNNN.bin; a series without tokens has none.
  ShardSeries(std::string folder, std::string prefix, const Tokenizer& tokenizer,
              std::int64_t shard_tokens);
  void append(std::span<const std::int32_t> ids);
  void finish();
  const PrepareSummary::Part& total() const { return total_; }
  std::string shard_path(int shard) const;

 private:
  std::string folder_, prefix_;
  Tokenizer tokenizer_;
  std::int64_t shard_tokens_;
  std::optional<ShardWriter> writer_;
  PrepareSummary::Part total_;
};

// Takes the last `tokens` tokens of a finished series away from its shards and gives them to
// `tail`; `head` becomes what is left.
void move_tail(const ShardSeries& series, std::int64_t tokens, const Tokenizer& tokenizer,
               ShardSeries& tail, PrepareSummary::Part& head);

}  // namespace copus::detail
