// What the fuzzers feed: each function takes any bytes. Whatever a user's broken or hostile file
// may hold ends in a ConfigError, or is accepted and then keeps its promises; anything else is a
// crash.
#pragma once
#include <cstdint>
#include <span>

namespace copus::test {

using Bytes = std::span<const std::uint8_t>;

void fuzz_safetensors(Bytes bytes);  // a .safetensors file
void fuzz_shard(Bytes bytes);        // a token shard
void fuzz_config(Bytes bytes);       // a run's configuration; the first byte picks its use
void fuzz_hf_config(Bytes bytes);    // a Hugging Face config.json
void fuzz_hf_index(Bytes bytes);     // model.safetensors.index.json beside two files
void fuzz_state(Bytes bytes);        // a checkpoint's state.json, its checksum made right

}  // namespace copus::test
