// Files and shards for the data tests, in a temporary folder of the test's own.
#pragma once
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <string>
#include <vector>

#include "copus/core/error.h"
#include "copus/data/tokens.h"
#include "support/temp_folder.h"

namespace copus::test {

inline void write_file(const std::string& path, const std::string& bytes) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}
inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline ShardHeader write_shard(const std::string& path, const std::vector<std::int32_t>& ids,
                               std::int64_t vocab = 257, const std::string& tokenizer = "bytes") {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  ShardWriter writer(path, vocab, tokenizer);
  writer.append(ids);
  writer.end_document();
  return writer.finish();
}

// first, first + 1, ... modulo 250
inline std::vector<std::int32_t> counting(std::int64_t count, std::int32_t first = 0) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
  std::iota(ids.begin(), ids.end(), first);
  for (std::int32_t& id : ids) id %= 250;
  return ids;
}

inline std::vector<std::int32_t> ids_of(const std::string& path) {
  TokenShard const shard = TokenShard::open(path, true);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(shard.header().tokens));
  shard.read(0, ids);
  return ids;
}

inline std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// What the ConfigError thrown by `body` says; empty when it throws none.
template <class Body>
std::string config_error(Body body) {
  try {
    body();
  } catch (const ConfigError& e) {
    return e.what();
  }
  return {};
}

}  // namespace copus::test
