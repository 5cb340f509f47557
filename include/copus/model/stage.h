// A rank's share of the model, run forward and backward by hand: no tape.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "copus/backend/buffer.h"
#include "copus/model/weights.h"
#include "copus/parallel/activations.h"

namespace copus {

// B samples of T tokens; rows one after the other.
struct MicroBatch {
  std::span<const std::int32_t> ids;      // (B T), each < vocab
  std::span<const std::int32_t> targets;  // (B T); -1: masked, bears no loss
  std::int64_t first_sample = 0;          // global number of sample 0: keys its dropout
  std::uint32_t step = 0;                 // likewise
};

// Training keeps every layer's tensors for its backward; evaluation goes round two sets of them.
enum class StageUse { train, evaluate };

class Stage {
 public:
  // Cuts its activations for micro-batches of `micro` samples from `arena`, in the order of
  // parallel/activations.h. `weights` and `gradients` are flat f32 as flat_layout says; gradients
  // are added to. `seed` keys dropout.
  Stage(const ModelConfig& model, const Layout& layout, const FlatLayout& flat, std::int64_t micro,
        std::uint64_t seed, Backend& backend, Arena& arena, const TensorView& weights,
        const TensorView& gradients);

  // Sum of the losses (nats) over the micro-batch's unmasked targets; adds the gradient of that sum
  // to `gradients`.
  double forward_backward(const MicroBatch& batch);
  // The same sum without dropout, and no gradient.
  double evaluate(const MicroBatch& batch);

  // Bytes that the constructor takes from the arena.
  static std::int64_t arena_bytes(const ModelConfig& model, const Layout& layout,
                                  std::int64_t micro, StageUse use);

 private:
  void forward(const MicroBatch& batch, bool training);

  ModelConfig model_;
  Layout layout_;
  std::int64_t micro_;
  std::uint64_t seed_;
  Backend& backend_;
  StageWeights weights_, gradients_;
  std::vector<std::vector<TensorView>> saved_;  // [layer % sets][Saved]
  std::vector<TensorView> scratch_, head_;      // [Scratch], [Head]
  std::vector<float> host_losses_;
};

}  // namespace copus
