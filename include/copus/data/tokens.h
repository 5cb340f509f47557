// Token shards: one memory-mapped file of ids behind a header that says what they are.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace copus {

struct ShardHeader {
  std::uint32_t version = 1;
  std::uint32_t token_bytes = 2;  // 2 when vocab <= 65536, else 4
  std::int64_t tokens = 0;
  std::int64_t documents = 0;
  std::int64_t vocab = 0;
  std::string tokenizer;       // id: "bytes", or a hash of the tokenizer's files
  std::uint64_t checksum = 0;  // XXH3 of the ids' bytes
};

class TokenShard {
 public:
  // Maps `path`; checks magic, version, length and every id against the vocabulary. Throws IoError
  // or ConfigError with path, offset, id and vocabulary. `verify_checksum` reads the whole file.
  static TokenShard open(const std::string& path, bool verify_checksum = false);
  // The header alone, whatever the ids are; throws likewise.
  static ShardHeader read_header(const std::string& path);
  TokenShard(TokenShard&&) noexcept;
  TokenShard& operator=(TokenShard&&) noexcept;
  ~TokenShard();

  const ShardHeader& header() const;
  const std::string& path() const;
  void read(std::int64_t first,
            std::span<std::int32_t> out) const;  // ids [first, first + out.size())

 private:
  struct Map;
  explicit TokenShard(std::unique_ptr<Map> map);
  std::unique_ptr<Map> map_;
};

// Streams ids into a shard. The file stands under a temporary name until finish(); a writer that is
// destroyed before that leaves nothing behind.
class ShardWriter {
 public:
  ShardWriter(const std::string& path, std::int64_t vocab, const std::string& tokenizer);
  ShardWriter(ShardWriter&&) noexcept;
  ShardWriter& operator=(ShardWriter&&) noexcept;
  ~ShardWriter();

  // Throws ConfigError on an id outside [0, vocab): it would wrap silently in two bytes.
  void append(std::span<const std::int32_t> ids);
  void end_document();  // counts one more document
  std::int64_t tokens() const;
  // Completes the header, syncs, renames to `path`. Nothing may follow.
  ShardHeader finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace copus
