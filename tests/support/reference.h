// The golden models of tests/golden: weights, text and the values an independent float64
// implementation got for them.
#pragma once
#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "copus/core/config.h"
#include "copus/state/hf.h"

namespace copus::test {

struct Reference {
  std::string directory;
  std::vector<std::int32_t> tokens;  // the text's bytes and the end of text
  nlohmann::json values;             // reference.json

  explicit Reference(const std::string& name)
      : directory(std::string(COPUS_TEST_DIR) + "/golden/" + name) {
    std::ifstream text(directory + "/text.txt", std::ios::binary);
    for (auto it = std::istreambuf_iterator<char>(text); it != std::istreambuf_iterator<char>();
         ++it) {
      tokens.push_back(static_cast<unsigned char>(*it));
    }
    tokens.push_back(256);
    values = nlohmann::json::parse(std::ifstream(directory + "/reference.json"));
  }

  std::int64_t seq_len() const { return values["seq_len"]; }
  std::int64_t windows() const { return values["windows"]; }

  // Window `index`, in file order.
  void sample(std::int64_t index, std::span<std::int32_t> inputs,
              std::span<std::int32_t> targets) const {
    auto const first = tokens.begin() + index * static_cast<std::int64_t>(inputs.size());
    std::copy_n(first, inputs.size(), inputs.begin());
    std::copy_n(first + 1, targets.size(), targets.begin());
  }

  // The reference's training run: its batch and optimizer, constant learning rate.
  Config config(std::int64_t micro) const {
    nlohmann::json const& t = values["train"];
    Config c;
    c.model = read_hf_config(directory);
    c.model.seq_len = seq_len();
    c.batch.sequences = t["batch"];
    c.batch.micro = micro;
    c.optimizer.lr = t["lr"];
    c.optimizer.beta1 = t["beta1"];
    c.optimizer.beta2 = t["beta2"];
    c.optimizer.eps = t["eps"];
    c.optimizer.weight_decay = t["weight_decay"];
    c.optimizer.clip = t["clip"];
    c.train.tokens = static_cast<std::int64_t>(t["steps"]) * c.batch.sequences * seq_len();
    return c;
  }
};

inline const char* const kReferenceNames[] = {"llama-gqa", "llama-tied", "qwen2", "gpt2"};

}  // namespace copus::test
