// Text from a model: its own output appended to its input, one token at a time.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "copus/backend/backend.h"
#include "copus/core/config.h"

namespace copus {

struct SampleOptions {
  double temperature = 1.0;  // 0: always the likeliest
  std::int64_t top_k = 0;    // draw among so many of the likeliest; 0: among all
};

// The id that `u` in [0, 1) falls on when ids are laid out in order, each as long as its
// probability, softmax(logits / temperature) over the top_k likeliest. Of equals the smaller id is
// the likelier.
std::int32_t pick_token(std::span<const float> logits, const SampleOptions& options, double u);

// A model on its own, with room for `context` tokens of input.
class Generator {
 public:
  Generator(const std::string& directory, const ModelConfig& model, std::int64_t context,
            Backend& backend);
  ~Generator();

  // What comes after `ids` (not empty; of a longer text the last `context` are seen): (V), valid
  // until the next call. The whole context is computed again each time.
  std::span<const float> logits_after(std::span<const std::int32_t> ids);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace copus
