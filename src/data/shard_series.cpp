#include "data/shard_series.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "copus/core/error.h"

namespace copus::detail {
namespace {

// An end of text is the last id of its document, whoever wrote the ids.
std::int64_t append_counted(ShardWriter& writer, std::span<const std::int32_t> ids,
                            const Tokenizer& tokenizer) {
  writer.append(ids);
  std::int64_t const ends = std::count(ids.begin(), ids.end(), tokenizer.end_of_text);
  for (std::int64_t i = 0; i < ends; ++i) writer.end_document();
  return ends;
}

}  // namespace

ShardSeries::ShardSeries(std::string folder, std::string prefix, const Tokenizer& tokenizer,
                         std::int64_t shard_tokens)
    : folder_(std::move(folder)),
      prefix_(std::move(prefix)),
      tokenizer_(tokenizer),
      shard_tokens_(shard_tokens) {}

std::string ShardSeries::shard_path(int shard) const {
  return fmt::format("{}/{}{:05}.bin", folder_, prefix_, shard);
}

void ShardSeries::append(std::span<const std::int32_t> ids) {
  while (!ids.empty()) {
    if (!writer_) writer_.emplace(shard_path(total_.shards++), tokenizer_.vocab, tokenizer_.id);
    auto const room = static_cast<std::size_t>(shard_tokens_ - writer_->tokens());
    std::span<const std::int32_t> const part = ids.first(std::min(room, ids.size()));
    total_.documents += append_counted(*writer_, part, tokenizer_);
    total_.tokens += static_cast<std::int64_t>(part.size());
    if (writer_->tokens() == shard_tokens_) finish();
    ids = ids.subspan(part.size());
  }
}

void ShardSeries::finish() {
  if (writer_) writer_->finish();
  writer_.reset();
}

void move_tail(const ShardSeries& series, std::int64_t tokens, const Tokenizer& tokenizer,
               ShardSeries& tail, PrepareSummary::Part& head) {
  constexpr std::int64_t kStep = std::int64_t{1} << 20;
  std::int64_t const cut = series.total().tokens - tokens;
  COPUS_CHECK(cut > 0 && tokens > 0, "both parts of a split have tokens");
  std::vector<std::int32_t> ids;
  std::int64_t start = 0;
  head = {};
  for (int i = 0; i < series.total().shards; ++i) {
    std::string const path = series.shard_path(i);
    TokenShard const shard = TokenShard::open(path);  // stays readable while its name is replaced
    std::int64_t const count = shard.header().tokens;
    std::int64_t const kept = std::clamp<std::int64_t>(cut - start, 0, count);
    std::optional<ShardWriter> writer;
    if (kept > 0 && kept < count) writer.emplace(path, tokenizer.vocab, tokenizer.id);
    head.documents += kept == count ? shard.header().documents : 0;
    for (std::int64_t at = kept == count ? count : 0; at < count;) {
      std::int64_t const end = std::min(at + kStep, at < kept ? kept : count);
      ids.resize(static_cast<std::size_t>(end - at));
      shard.read(at, ids);
      if (at < kept) {
        head.documents += append_counted(*writer, ids, tokenizer);
      } else {
        tail.append(ids);
      }
      at = end;
    }
    if (writer) writer->finish();
    if (kept == 0) std::filesystem::remove(path);
    head.shards += kept > 0;
    head.tokens += kept;
    start += count;
  }
}

}  // namespace copus::detail
