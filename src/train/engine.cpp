#include "copus/train/engine.h"

#include <algorithm>

#include "copus/core/error.h"
#include "copus/parallel/schedule.h"

namespace copus {
namespace {

Recompute recompute_of(const Config& config) {
  return config.parallel.recompute.value_or(Recompute::none);
}

StageSetup setup_of(const Config& config, const Mesh& mesh, std::int64_t micro,
                    AttentionLibrary library) {
  StageSetup setup;
  setup.model = config.model;
  setup.layout = mesh.layout();
  setup.micro = micro;
  setup.live =
      live_peak(mesh.layout(), mesh.coord().pp, most_micro_batches(config, mesh.layout(), micro));
  setup.seed = config.train.seed;
  setup.recompute = recompute_of(config);
  setup.precision = config.train.precision;
  setup.library = library;
  return setup;
}

// Master, m and v, at the very end of the arena, so that two engines' states can lie at the two
// ends of one buffer. Where nothing is cut or rounded the weights are the master.
TrainState take_state(Arena& arena, const FlatLayout& flat, const Layout& layout, DType compute,
                      TensorView& weights) {
  TrainState state;
  bool const cut = state_is_cut(layout), apart = cut || compute != DType::f32;
  std::int64_t const numel = cut ? flat.state_numel / layout.dp : flat.state_numel;
  if (apart) {
    state.master = arena.take(DType::f32, {numel});
  } else {
    weights = arena.take(DType::f32, {flat.numel});
    state.master = weights.slice(0, 0, numel);
  }
  state.m = arena.take(DType::f32, {numel});
  state.v = arena.take(DType::f32, {numel});
  if (apart) weights = arena.take(compute, {flat.numel});
  return state;
}

GradientBuffers take_gradient_buffers(Arena& arena, const Config& config, const FlatLayout& flat,
                                      const Mesh& mesh) {
  GradientBuffers buffers;
  const ModelConfig& model = config.model;
  if (model.tie_embeddings && mesh.layout().pp > 1 && mesh.coord().pp == 0) {
    buffers.tied =
        arena.take(DType::f32, {flat.find(parameter_table(model), Role::embed, -1)->numel()});
  }
  if (measures_noise_scale(config)) {
    NoiseScaleBuffers const sizes = noise_scale_buffers(model, mesh.layout(), mesh.coord().pp);
    buffers.tied_first = arena.take(DType::f32, {sizes.tied});
    buffers.partial = arena.take(DType::f32, {sizes.partial});
  }
  return buffers;
}

// What survives a step.
std::int64_t kept_bytes(const MemoryPlan& plan) {
  return plan.bytes("weights") + plan.bytes("master") + plan.bytes("adam_m") + plan.bytes("adam_v");
}

}  // namespace

bool measures_noise_scale(const Config& config) {
  return config.adapt.mode != AdaptMode::off;
}

MemoryPlan engine_memory(const Config& config, const Layout& layout, std::int64_t micro,
                         int pp_rank, AttentionLibrary library) {
  return memory_plan(config.model, layout, micro, most_micro_batches(config, layout, micro),
                     config.train.precision, recompute_of(config), pp_rank,
                     measures_noise_scale(config), library);
}

Engine::Engine(const Config& config, const Mesh& mesh, std::int64_t micro, Backend& backend,
               Arena arena, CollectiveQueue& queue)
    : backend_(backend),
      mesh_(mesh),
      micro_(micro),
      flat_(flat_layout(config.model, mesh.layout(), mesh.coord().tp, mesh.coord().pp)),
      memory_(engine_memory(config, mesh.layout(), micro, mesh.coord().pp,
                            backend.attention_library())),
      arena_(std::move(arena)),
      state_(
          take_state(arena_, flat_, mesh.layout(), compute_type(config.train.precision), weights_)),
      gradients_(arena_.take(DType::f32, {flat_.numel})),
      owned_(owned_stretches(flat_, mesh.layout(), mesh.coord().dp)),
      optimizer_(parameter_table(config.model), flat_, owned_, config.optimizer, backend),
      stage_(setup_of(config, mesh_, micro, backend.attention_library()), flat_, mesh_, backend,
             arena_, weights_, gradients_),
      sync_(config.model, parameter_table(config.model), flat_, mesh_, backend, gradients_,
            take_gradient_buffers(arena_, config, flat_, mesh_), queue) {
  COPUS_CHECK(arena_.used() == arena_.bytes(), "the memory plan and the arena agree to the byte");
  stage_.before_reading([this](std::int64_t layer) { sync_.await_weights(layer); });
}

bool Engine::has_room_for(const MemoryPlan& plan) const {
  std::int64_t const capacity = arena_.buffer()->bytes();
  return kept_bytes(memory_) + kept_bytes(plan) <= capacity && plan.total() <= capacity;
}

void Engine::prepare() {
  stage_.prepare();
  // What lies between the parameters is never written again, and is summed over ranks with them.
  backend_.zero(gradients_);
}

bool Engine::master_is_apart() const {
  return state_is_cut(mesh_.layout()) || weights_.dtype != DType::f32;
}

void Engine::take_master() {
  await_weights();
  if (master_is_apart()) {
    for (const Owned& o : owned_) {
      backend_.copy(weights_.slice(0, o.flat, o.size), state_.master.slice(0, o.state, o.size));
    }
  }
  sync_.start_gather(weights_);
}

void Engine::update(const TrainState& state, std::int64_t tokens, double norm,
                    const StepScalars& step) {
  await_weights();
  optimizer_.update(state, gradients_, master_is_apart() ? weights_ : TensorView{}, tokens, norm,
                    step);
  sync_.start_gather(weights_);
}

TensorView Engine::full_weights() const {
  return weights_.dtype == DType::f32 ? weights_ : gradients_;
}

void Engine::give_master() {
  TensorView const full = full_weights();
  if (master_is_apart()) {
    for (const Owned& o : owned_) {
      backend_.copy(state_.master.slice(0, o.state, o.size), full.slice(0, o.flat, o.size));
    }
  }
  if (full.dtype != weights_.dtype) backend_.copy(weights_, full);
}

TensorView Engine::gather_full_weights() {
  await_weights();
  TensorView const full = full_weights();
  if (full.dtype == weights_.dtype) return full;
  for (const Owned& o : owned_) {
    backend_.copy(full.slice(0, o.flat, o.size), state_.master.slice(0, o.state, o.size));
  }
  sync_.start_gather(full);
  await_weights();
  return full;
}

}  // namespace copus
