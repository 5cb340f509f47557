// Every input of tests/fuzz/corpus, seeds and past crashes alike, goes through its target.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <vector>

#include "fuzz/targets.h"

using namespace copus::test;

TEST_CASE("no input that a fuzzer was given or found ends in anything but its answer") {
  std::map<std::string, void (*)(Bytes)> const targets = {
      {"safetensors", fuzz_safetensors}, {"shard", fuzz_shard},       {"config", fuzz_config},
      {"hf_config", fuzz_hf_config},     {"hf_index", fuzz_hf_index}, {"state", fuzz_state}};
  namespace fs = std::filesystem;
  for (const auto& [name, target] : targets) {
    std::vector<fs::path> inputs;
    for (const auto& entry : fs::directory_iterator(COPUS_TEST_DIR "/fuzz/corpus/" + name))
      inputs.push_back(entry.path());
    CHECK_FALSE(inputs.empty());
    for (const fs::path& input : inputs) {
      INFO(input);
      std::ifstream in(input, std::ios::binary);
      std::vector<std::uint8_t> bytes{std::istreambuf_iterator<char>(in), {}};
      CHECK_NOTHROW(target(bytes));
      // ... nor does the file cut short anywhere.
      for (std::size_t cut = 0; cut < bytes.size(); cut += 1 + bytes.size() / 64)
        CHECK_NOTHROW(target(Bytes(bytes).first(cut)));
    }
  }
}
