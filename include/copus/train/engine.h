// What one rank computes with in one layout: the arena with weights, gradients and state cut from
// it, the stage, and the sums over ranks. A switch makes a new one beside the old.
#pragma once
#include <cstdint>
#include <vector>

#include "copus/backend/buffer.h"
#include "copus/comm/mesh.h"
#include "copus/core/config.h"
#include "copus/model/stage.h"
#include "copus/parallel/memory.h"
#include "copus/state/train_state.h"
#include "copus/train/gradients.h"
#include "copus/train/optimizer.h"

namespace copus {

// Whether the run's steps measure the noise scale.
bool measures_noise_scale(const Config& config);

// The memory of one rank of `layout` in any step of the run, as the planner prices it and the
// engine's arena is cut.
MemoryPlan engine_memory(const Config& config, const Layout& layout, std::int64_t micro,
                         int pp_rank, AttentionLibrary library);

class Engine {
 public:
  // On an active rank of the mesh. Takes every view from `arena`, state and weights first, and
  // writes nothing. `queue`: the rank's, which outlives it.
  Engine(const Config& config, const Mesh& mesh, std::int64_t micro, Backend& backend, Arena arena,
         CollectiveQueue& queue);
  // Whether a new engine's state fits into the buffer of this one's arena while this one's state
  // and weights live, and all of it afterwards.
  bool has_room_for(const MemoryPlan& plan) const;
  // Writes the constants; everything in the arena that is not state may be lost.
  void prepare();

  // The weights that computing reads, from the master: this rank's pieces, then the others', which
  // go on arriving while a forward has begun. await_weights returns when all are there: before
  // anything else is done with the weights' memory or the group.
  void take_master();
  void await_weights() { sync_.await_weights(); }
  // One step of the optimizer (Optimizer::update), and take_master's part after it.
  void update(const TrainState& state, std::int64_t tokens, double norm, const StepScalars& step);
  // Flat f32 of the shard, to write weights into from outside: the weights, or, where those are
  // bf16, the gradients' buffer, which is dead between steps. give_master then takes them over.
  TensorView full_weights() const;
  void give_master();
  // Every fp32 weight of the shard, where full_weights is; together with the data-parallel ranks.
  TensorView gather_full_weights();

  const Mesh& mesh() const { return mesh_; }
  std::int64_t micro() const { return micro_; }
  const FlatLayout& flat() const { return flat_; }
  const MemoryPlan& memory() const { return memory_; }
  const Arena& arena() const { return arena_; }
  const TensorView& gradients() const { return gradients_; }
  const TrainState& state() const { return state_; }  // views; the counters are the trainer's
  const Optimizer& optimizer() const { return optimizer_; }
  Stage& stage() { return stage_; }
  GradientSync& sync() { return sync_; }

 private:
  bool master_is_apart() const;

  Backend& backend_;
  Mesh mesh_;
  std::int64_t micro_;
  FlatLayout flat_;
  MemoryPlan memory_;
  Arena arena_;
  TensorView weights_;
  TrainState state_;
  TensorView gradients_;
  std::vector<Owned> owned_;
  Optimizer optimizer_;
  Stage stage_;
  GradientSync sync_;
};

}  // namespace copus
