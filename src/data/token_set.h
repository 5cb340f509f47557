// A data set: the shards of one source, read as one stream of tokens.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "copus/core/config.h"
#include "copus/core/log.h"
#include "copus/data/loader.h"
#include "copus/data/tokens.h"

namespace copus::detail {

class TokenSet {
 public:
  explicit TokenSet(std::vector<TokenShard> shards);
  std::int64_t tokens() const { return starts_.back(); }
  void read(std::int64_t first, std::span<std::int32_t> out) const;  // across shard boundaries
  const std::vector<TokenShard>& shards() const { return shards_; }

 private:
  std::vector<TokenShard> shards_;
  std::vector<std::int64_t> starts_;  // of each shard, and the end
};

// How a list of sources is to be opened.
struct OpenRules {
  std::string key;       // for messages: "data.train"
  std::string prefix;    // shards of a directory: "train-", or "" for all
  std::int64_t vocab;    // the model's
  std::int64_t seq_len;  // T
};

// The files of one source, in name order; an empty list adds its reason to `problems`.
std::vector<std::string> shard_paths(const std::string& source, const OpenRules& rules,
                                     const std::string& key, std::vector<std::string>& problems);

// Opens every source. Whatever is wrong is added to `problems`, and the sources that are right are
// returned in order; without problems that is all of them.
std::vector<TokenSet> open_sources(const std::vector<DataSource>& sources, const OpenRules& rules,
                                   Log& log, std::vector<std::string>& problems);

SourceSummary summarize(const DataSource& source, const TokenSet& set, std::int64_t windows);

}  // namespace copus::detail
