// The bytes of a shard's header. Little-endian; ids start at a multiple of 64.
//
//   0 magic "COPUSTOK"   8 u32 version       12 u32 token_bytes   16 i64 tokens
//  24 i64 documents     32 i64 vocab         40 u64 checksum      48 u32 offset of the ids
//  52 u32 length of the tokenizer's id       56 the tokenizer's id, then zeros up to the ids
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "copus/data/tokens.h"

namespace copus::detail {

constexpr std::int64_t kFixedHeaderBytes = 56;
constexpr std::int64_t kIdAlignment = 64;
constexpr std::int64_t kMaxTokenizerBytes = 4096;
constexpr std::int64_t kMaxVocab = (std::int64_t{1} << 31) - 1;  // ids are read as int32

constexpr std::uint32_t token_bytes_for(std::int64_t vocab) {
  return vocab <= 65536 ? 2 : 4;
}

// Where the ids of a shard with this tokenizer id start.
constexpr std::int64_t ids_offset(std::int64_t tokenizer_bytes) {
  return (kFixedHeaderBytes + tokenizer_bytes + kIdAlignment - 1) / kIdAlignment * kIdAlignment;
}

std::vector<std::byte> encode_header(const ShardHeader& header);
// `file` is the whole file; nothing outside it is read, whatever the header claims. Throws
// ConfigError naming `path`.
ShardHeader decode_header(std::span<const std::byte> file, const std::string& path);

}  // namespace copus::detail
