// A rank's share of the model, run forward and backward by hand: no tape.
//
// A stage holds the layers of its chunks (one, or virtual_stages of them) and keeps the activations
// of as many micro-batches as its pipeline schedule has in flight. It computes and, within its
// tensor-parallel group, communicates; messages between stages are the caller's, who gets the views
// to send from and receive into.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "copus/backend/buffer.h"
#include "copus/comm/mesh.h"
#include "copus/model/weights.h"
#include "copus/parallel/activations.h"

namespace copus {

// B samples of T tokens; rows one after the other. The first stage reads ids, the last targets.
struct MicroBatch {
  std::span<const std::int32_t> ids;      // (B T), each < vocab
  std::span<const std::int32_t> targets;  // (B T); -1: masked, bears no loss
  std::int64_t first_sample = 0;          // global number of sample 0: keys its dropout
  std::uint32_t step = 0;                 // likewise
};

// Training keeps every layer's tensors for its backward; evaluation goes round two sets of them.
enum class StageUse { train, evaluate };

struct StageSetup {
  ModelConfig model;
  Layout layout;
  std::int64_t micro = 1;
  std::int64_t live = 1;  // micro-batches of a chunk whose activations wait at one time (live_peak)
  std::uint64_t seed = 0;  // keys dropout
  StageUse use = StageUse::train;
  Recompute recompute = Recompute::none;
  Precision precision = Precision::fp32;              // of `weights` and of the activations
  AttentionLibrary library = AttentionLibrary::none;  // whose workspace the arena has room for
};

class Stage {
 public:
  // Called in backward as soon as a layer's gradient has this micro-batch's part: model.layers for
  // final norm and head, layer numbers downwards, -1 for the embeddings.
  using GradientReady = std::function<void(std::int64_t layer)>;

  // Cuts its activations from `arena`, in the order of parallel/activations.h, and writes nothing.
  // `weights` (of the compute type) and `gradients` (f32) are flat as flat_layout says. Gradients
  // are written by a step's first micro-batch, 0, and added to by the others (start_gradients);
  // they are empty for a stage that only evaluates.
  Stage(const StageSetup& setup, const FlatLayout& flat, const Mesh& mesh, Backend& backend,
        Arena& arena, const TensorView& weights, const TensorView& gradients);
  // Writes the constants into the arena. Once, before anything is run.
  void prepare();

  // Called before anything reads a layer's weights, with GradientReady's numbers: they may still be
  // on their way.
  using WeightsNeeded = std::function<void(std::int64_t layer)>;
  void before_reading(WeightsNeeded needed) { needed_ = std::move(needed); }

  bool is_first(int chunk) const;  // it embeds the ids
  bool is_last(int chunk) const;   // it has the head

  // Messages, all (R, C). A stage has one buffer for each of the four on its way.
  //
  // Where a chunk's input is to be received; take_input then makes it that of (micro, chunk), which
  // takes a free place, and another tensor is incoming.
  const TensorView& incoming() const { return message(OnTheWay::input); }
  void take_input(std::int64_t micro, int chunk);
  // What the last forward (not of the last chunk) made: to be sent before the next forward.
  const TensorView& output() const { return message(OnTheWay::output); }
  // Where the gradient of a chunk's output is to be received; take_output_gradient then makes it
  // what the next backward starts from, and what input_gradient was is where the next is received.
  const TensorView& output_gradient() const { return message(OnTheWay::output_gradient); }
  void take_output_gradient();
  // What the last backward (not of the first chunk) made: to be sent before the next backward and
  // the next take_output_gradient.
  TensorView input_gradient() const;

  // Before the backwards of a step: zeroes the gradients that every micro-batch adds to. Those of
  // the matrices, nearly all there is, are left alone, because micro-batch 0 overwrites them.
  void start_gradients();
  void forward(std::int64_t micro, int chunk, const MicroBatch& batch);
  // Frees the place of (micro, chunk). On the last chunk: the sum of losses (nats) over unmasked
  // targets, whose gradient this starts from; else 0.
  double backward(std::int64_t micro, int chunk, const MicroBatch& batch,
                  const GradientReady& ready);
  // Without dropout and gradient; frees the place at once. The sum of losses on the last chunk,
  // else 0.
  double evaluate(std::int64_t micro, int chunk, const MicroBatch& batch);

  // On a stage that is the whole model, after evaluate: the logits of row `row` of (B T), padding
  // left out, on the host.
  void logits(std::int64_t row, std::span<float> out) const;  // (V)

  // Bytes that the constructor takes from the arena.
  static std::int64_t arena_bytes(const StageSetup& setup, int pp_rank);

 private:
  // The activations of one micro-batch in one chunk.
  struct Place {
    std::int64_t micro = -1;  // -1: free
    int chunk = 0;
    std::vector<std::vector<TensorView>> saved;  // [layer % sets][Saved]
  };
  const TensorView& message(OnTheWay which) const {
    return messages_[static_cast<std::size_t>(which)];
  }
  Place& place_of(std::int64_t micro, int chunk);
  Place& take_place(std::int64_t micro, int chunk);
  void run_forward(Place& place, const MicroBatch& batch, bool training);
  void need(std::int64_t layer) const {
    if (needed_) needed_(layer);
  }

  StageSetup setup_;
  const Mesh& mesh_;
  Backend& backend_;
  StageWeights weights_, gradients_;
  std::vector<LayerRange> chunks_;
  std::vector<Place> places_;
  std::vector<TensorView> scratch_, head_, messages_;  // [Scratch], [Head], [OnTheWay]
  std::vector<float> host_losses_;
  WeightsNeeded needed_;
};

}  // namespace copus
