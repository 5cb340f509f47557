#include "data/token_set.h"

#include <fmt/format.h>
#include <glob.h>

#include <algorithm>
#include <filesystem>

#include "copus/core/error.h"

namespace copus::detail {
namespace {

namespace fs = std::filesystem;

bool ends_with(const std::string& text, const std::string& ending) {
  return text.size() >= ending.size() &&
         text.compare(text.size() - ending.size(), ending.size(), ending) == 0;
}

std::vector<std::string> in_directory(const std::string& path, const OpenRules& rules,
                                      const std::string& key, std::vector<std::string>& problems) {
  std::vector<std::string> found;
  std::error_code error;
  int others = 0;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    std::string const name = it->path().filename().string();
    if (!ends_with(name, ".bin") || !it->is_regular_file(error)) continue;
    if (name.rfind(rules.prefix, 0) == 0) {
      found.push_back(it->path().string());
    } else {
      ++others;
    }
  }
  if (error) {
    problems.push_back(fmt::format("{}: {}: cannot list: {}", key, path, error.message()));
  } else if (found.empty()) {
    problems.push_back(fmt::format(
        "{}: {}: a directory without {}*.bin shards{} (copus prepare makes them)", key, path,
        rules.prefix,
        others ? fmt::format("; its {} other .bin files need a glob or their names", others) : ""));
  }
  return found;
}

std::vector<std::string> matches(const std::string& pattern) {
  glob_t result{};
  std::vector<std::string> found;
  if (::glob(pattern.c_str(), 0, nullptr, &result) == 0) {
    for (std::size_t i = 0; i < result.gl_pathc; ++i) {
      if (fs::is_regular_file(result.gl_pathv[i])) found.emplace_back(result.gl_pathv[i]);
    }
  }
  globfree(&result);
  return found;
}

void check_vocab(const TokenShard& shard, const OpenRules& rules, const std::string& key,
                 std::vector<std::string>& problems) {
  if (shard.header().vocab > rules.vocab) {
    problems.push_back(fmt::format(
        "{}: {}: vocabulary {} (tokenizer \"{}\"), the model's is {}; accepted: at "
        "most the model's",
        key, shard.path(), shard.header().vocab, shard.header().tokenizer, rules.vocab));
  }
}

// Every shard speaks one language: that of the first one.
void check_same(const TokenShard& first, const TokenShard& shard, const std::string& key,
                std::vector<std::string>& problems) {
  const ShardHeader &a = first.header(), &b = shard.header();
  if (a.tokenizer != b.tokenizer || a.vocab != b.vocab) {
    problems.push_back(
        fmt::format("{}: {}: tokenizer \"{}\" with vocabulary {}, but {} has \"{}\" with {}", key,
                    shard.path(), b.tokenizer, b.vocab, first.path(), a.tokenizer, a.vocab));
  }
}

std::vector<TokenShard> open_shards(const std::vector<std::string>& paths, const std::string& key,
                                    std::vector<std::string>& empty,
                                    std::vector<std::string>& problems) {
  std::vector<TokenShard> shards;
  for (const std::string& path : paths) {
    try {
      std::error_code error;
      if (fs::file_size(path, error) == 0 && !error) {
        empty.push_back(path);
        continue;
      }
      TokenShard shard = TokenShard::open(path, true);
      if (shard.header().tokens == 0) {
        empty.push_back(path);
      } else {
        shards.push_back(std::move(shard));
      }
    } catch (const std::runtime_error& e) {
      problems.push_back(fmt::format("{}: {}", key, e.what()));
    }
  }
  return shards;
}

}  // namespace

TokenSet::TokenSet(std::vector<TokenShard> shards) : shards_(std::move(shards)), starts_{0} {
  for (const TokenShard& shard : shards_) {
    starts_.push_back(starts_.back() + shard.header().tokens);
  }
}

void TokenSet::read(std::int64_t first, std::span<std::int32_t> out) const {
  COPUS_CHECK(first >= 0 && first + static_cast<std::int64_t>(out.size()) <= tokens(),
              "a read lies inside its data set");
  auto shard = static_cast<std::size_t>(std::upper_bound(starts_.begin(), starts_.end(), first) -
                                        starts_.begin() - 1);
  while (!out.empty()) {
    std::int64_t const left = starts_[shard + 1] - first;
    std::size_t const count = std::min(out.size(), static_cast<std::size_t>(left));
    shards_[shard].read(first - starts_[shard], out.first(count));
    out = out.subspan(count);
    first += static_cast<std::int64_t>(count);
    ++shard;
  }
}

std::vector<std::string> shard_paths(const std::string& source, const OpenRules& rules,
                                     const std::string& key, std::vector<std::string>& problems) {
  std::error_code error;
  std::vector<std::string> found;
  if (fs::is_directory(source, error)) {
    found = in_directory(source, rules, key, problems);
  } else if (fs::exists(source, error)) {
    found = {source};
  } else if (source.find_first_of("*?[") != std::string::npos) {
    found = matches(source);
    if (found.empty()) problems.push_back(fmt::format("{}: {}: no file matches", key, source));
  } else {
    problems.push_back(fmt::format(
        "{}: {}: does not exist; accepted: a directory, a glob or a shard", key, source));
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<TokenSet> open_sources(const std::vector<DataSource>& sources, const OpenRules& rules,
                                   Log& log, std::vector<std::string>& problems) {
  std::vector<TokenSet> sets;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    std::string const key = sources.size() == 1 ? rules.key : fmt::format("{}[{}]", rules.key, i);
    std::size_t const before = problems.size();
    std::vector<std::string> const paths = shard_paths(sources[i].path, rules, key, problems);
    std::vector<std::string> empty;
    std::vector<TokenShard> shards = open_shards(paths, key, empty, problems);
    for (const TokenShard& shard : shards) {
      check_vocab(shard, rules, key, problems);
      check_same(sets.empty() ? shards.front() : sets.front().shards().front(), shard, key,
                 problems);
    }
    if (shards.empty() && problems.size() == before) {
      problems.push_back(fmt::format("{}: {}: no tokens in {} shard{}", key, sources[i].path,
                                     paths.size(), paths.size() == 1 ? "" : "s"));
    }
    if (shards.empty()) continue;
    for (const std::string& path : empty) {
      log.warn(fmt::format("{}: {}: no tokens, skipped", key, path));
    }
    sets.emplace_back(std::move(shards));
  }
  return sets;
}

SourceSummary summarize(const DataSource& source, const TokenSet& set, std::int64_t windows) {
  SourceSummary summary{.path = source.path,
                        .shards = static_cast<int>(set.shards().size()),
                        .tokens = set.tokens(),
                        .windows = windows,
                        .weight = source.weight,
                        .tokenizer = set.shards().front().header().tokenizer};
  for (const TokenShard& shard : set.shards()) summary.documents += shard.header().documents;
  return summary;
}

}  // namespace copus::detail
