// The binary formats.
#include <vector>

#include "copus/core/error.h"
#include "copus/data/tokens.h"
#include "copus/state/safetensors.h"
#include "fuzz/scratch.h"

namespace copus::test {

void fuzz_safetensors(Bytes bytes) {
  MemoryFile const file(bytes);
  try {
    SafetensorsFile const opened = SafetensorsFile::open(file.path());
    std::int64_t total = 0;
    std::vector<float> values;
    for (const auto& [name, entry] : opened.tensors()) {
      total += entry.end - entry.begin;
      if (entry.dtype != "F32" && entry.dtype != "BF16" && entry.dtype != "F16") continue;
      values.resize(static_cast<std::size_t>(entry.numel()));
      opened.read_f32(name, 0, values);  // every byte of it: a wrong offset faults
    }
    COPUS_CHECK(total <= static_cast<std::int64_t>(bytes.size()), "tensors lie inside their file");
  } catch (const ConfigError&) {
  }
}

void fuzz_shard(Bytes bytes) {
  MemoryFile const file(bytes);
  try {
    TokenShard const shard = TokenShard::open(file.path());
    const ShardHeader& header = shard.header();
    std::vector<std::int32_t> ids(static_cast<std::size_t>(header.tokens));
    shard.read(0, ids);
    for (std::int32_t const id : ids)
      COPUS_CHECK(id >= 0 && id < header.vocab, "every id is one of the vocabulary");
    COPUS_CHECK(header.tokens * header.token_bytes <= static_cast<std::int64_t>(bytes.size()),
                "the ids lie inside their file");
  } catch (const ConfigError&) {
  }
}

}  // namespace copus::test
