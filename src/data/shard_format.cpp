#include "data/shard_format.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "copus/core/error.h"
#include "copus/core/printable.h"

namespace copus::detail {
namespace {

static_assert(std::endian::native == std::endian::little, "shards are little-endian");

constexpr char kMagic[9] = "COPUSTOK";
constexpr std::uint32_t kVersion = 1;

template <class T>
void put(std::vector<std::byte>& bytes, std::size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

template <class T>
T get(std::span<const std::byte> bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw ConfigError(fmt::format("{}: {}", path, what));
}

void check_sizes(const ShardHeader& h, std::int64_t file_bytes, std::int64_t offset,
                 const std::string& path) {
  if (h.vocab < 1 || h.vocab > kMaxVocab) {
    refuse(path, fmt::format("its header claims a vocabulary of {} (1 to {} are possible)", h.vocab,
                             kMaxVocab));
  }
  if (h.token_bytes != token_bytes_for(h.vocab)) {
    refuse(path, fmt::format("its header claims {} bytes a token, a vocabulary of {} takes {}",
                             h.token_bytes, h.vocab, token_bytes_for(h.vocab)));
  }
  // Divided, not multiplied: a hostile count must not overflow.
  std::int64_t const width = h.token_bytes, room = file_bytes - offset;
  if (h.tokens < 0 || h.tokens > room / width) {
    refuse(path, fmt::format("cut short: its header claims {} tokens, the file has room for {}",
                             h.tokens, room / width));
  }
  if (h.tokens * width != room) {
    refuse(path, fmt::format("{} bytes follow its {} tokens: not written by copus prepare",
                             room - h.tokens * width, h.tokens));
  }
  if (h.documents < 0 || h.documents > h.tokens) {
    refuse(path, fmt::format("its header claims {} documents in {} tokens", h.documents, h.tokens));
  }
}

}  // namespace

std::vector<std::byte> encode_header(const ShardHeader& h) {
  auto const id_bytes = static_cast<std::int64_t>(h.tokenizer.size());
  COPUS_CHECK(id_bytes <= kMaxTokenizerBytes, "a tokenizer id is a name or a hash");
  std::int64_t const offset = ids_offset(id_bytes);
  std::vector<std::byte> bytes(static_cast<std::size_t>(offset));
  std::memcpy(bytes.data(), kMagic, 8);
  put(bytes, 8, h.version);
  put(bytes, 12, h.token_bytes);
  put(bytes, 16, h.tokens);
  put(bytes, 24, h.documents);
  put(bytes, 32, h.vocab);
  put(bytes, 40, h.checksum);
  put(bytes, 48, static_cast<std::uint32_t>(offset));
  put(bytes, 52, static_cast<std::uint32_t>(id_bytes));
  std::memcpy(bytes.data() + kFixedHeaderBytes, h.tokenizer.data(), h.tokenizer.size());
  return bytes;
}

ShardHeader decode_header(std::span<const std::byte> file, const std::string& path) {
  auto const file_bytes = static_cast<std::int64_t>(file.size());
  if (file_bytes < kFixedHeaderBytes || std::memcmp(file.data(), kMagic, 8) != 0) {
    refuse(path, "not a token shard (copus prepare makes them)");
  }
  ShardHeader h;
  h.version = get<std::uint32_t>(file, 8);
  if (h.version != kVersion) {
    refuse(path, fmt::format("shard version {}, this copus reads version {}", h.version, kVersion));
  }
  h.token_bytes = get<std::uint32_t>(file, 12);
  h.tokens = get<std::int64_t>(file, 16);
  h.documents = get<std::int64_t>(file, 24);
  h.vocab = get<std::int64_t>(file, 32);
  h.checksum = get<std::uint64_t>(file, 40);
  std::int64_t const offset = get<std::uint32_t>(file, 48);
  std::int64_t const id_bytes = get<std::uint32_t>(file, 52);
  if (id_bytes > kMaxTokenizerBytes || offset != ids_offset(id_bytes) || offset > file_bytes) {
    refuse(path, fmt::format("its header is damaged (ids at {}, tokenizer id of {} bytes, file of "
                             "{} bytes)",
                             offset, id_bytes, file_bytes));
  }
  h.tokenizer.assign(reinterpret_cast<const char*>(file.data()) + kFixedHeaderBytes,
                     static_cast<std::size_t>(id_bytes));
  // It stands in every checkpoint of a run on these tokens.
  if (h.tokenizer.empty() || printable_line(h.tokenizer) != h.tokenizer) {
    refuse(path,
           fmt::format("its header is damaged: tokenizer id \"{}\"", printable_line(h.tokenizer)));
  }
  check_sizes(h, file_bytes, offset, path);
  return h;
}

}  // namespace copus::detail
