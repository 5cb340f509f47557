#include "copus/parallel/memory.h"

#include <algorithm>

#include "copus/core/error.h"
#include "copus/parallel/params.h"
#include "copus/parallel/schedule.h"

namespace copus {
namespace {

// A flat buffer, rounded up as the arena does.
std::int64_t flat_bytes(std::int64_t numel, DType dtype) {
  return TensorSpec{"", dtype, 1, {numel}}.bytes();
}

// Everything the segments are computed from.
struct Stage {
  const ModelConfig& model;
  const Layout& layout;
  std::int64_t micro, accumulation;
  Precision precision;
  Recompute recompute;
  int pp_rank;
  AttentionLibrary library;

  bool first() const { return pp_rank == 0; }
  bool last() const { return pp_rank == layout.pp - 1; }
  std::vector<TensorSpec> scratch() const {
    return scratch_tensors(model, layout, micro, precision, library);
  }
  std::int64_t live() const { return live_peak(layout, pp_rank, accumulation); }
};

// Of one layer and micro-batch: what is kept, or what is not.
std::int64_t layer_bytes(const Stage& stage, bool kept) {
  std::vector<TensorSpec> const specs =
      saved_tensors(stage.model, stage.layout, stage.micro, stage.precision);
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (is_kept(static_cast<Saved>(i), stage.recompute) == kept) sum += specs[i].bytes();
  }
  return sum;
}

std::int64_t saved_bytes(const Stage& stage) {
  LayerRange const chunk = layers_of(stage.model.layers, stage.layout, stage.pp_rank, 0);
  return stage.live() * (chunk.end - chunk.begin) * layer_bytes(stage, true);
}

std::int64_t scratch_bytes(const Stage& stage) {
  std::vector<TensorSpec> const specs = stage.scratch();
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    Scratch const tensor = static_cast<Scratch>(i);
    // Those two live as long as their micro-batch: batch_bytes.
    if (tensor == Scratch::ids || tensor == Scratch::targets) continue;
    if (tensor == Scratch::attention) continue;  // attention_bytes
    sum += specs[i].bytes();
  }
  return sum;
}

std::int64_t attention_bytes(const Stage& stage) {
  return stage.scratch()[static_cast<std::size_t>(Scratch::attention)].bytes();
}

std::int64_t head_bytes(const Stage& stage) {
  if (!stage.last()) return 0;
  std::int64_t sum = 0;
  for (const TensorSpec& spec :
       head_tensors(stage.model, stage.layout, stage.micro, stage.precision)) {
    sum += spec.bytes();
  }
  return sum;
}

std::int64_t batch_bytes(const Stage& stage) {
  std::vector<TensorSpec> const specs = stage.scratch();
  // One micro-batch's, brought from the host again for the embedding's backward.
  std::int64_t sum = 0;
  if (stage.first()) sum += specs[static_cast<std::size_t>(Scratch::ids)].bytes();
  if (stage.last()) sum += specs[static_cast<std::size_t>(Scratch::targets)].bytes();
  return sum;
}

std::int64_t communication_bytes(const Stage& stage) {
  std::int64_t sum = 0;
  for (const TensorSpec& spec :
       message_tensors(stage.model, stage.layout, stage.micro, stage.precision, stage.pp_rank)) {
    sum += spec.bytes();
  }
  return sum;
}

std::int64_t tied_gradient_bytes(const Stage& stage) {
  if (!stage.model.tie_embeddings || stage.layout.pp == 1 || !stage.first()) return 0;
  std::int64_t const rows = padded_vocab(stage.model, stage.layout) / stage.layout.tp;
  return flat_bytes(rows * stage.model.hidden, DType::f32);
}

NoiseScaleBuffers noise_scale_part(const ModelConfig& model, const Layout& layout,
                                   const FlatLayout& flat) {
  NoiseScaleBuffers buffers;
  std::vector<Param> const table = parameter_table(model);
  for (const LocalParam& local : flat.params) {
    const Param& param = table[static_cast<std::size_t>(local.param)];
    if (is_partial_over_tp(layout, param, local))
      buffers.partial = std::max(buffers.partial, local.numel());
    if (model.tie_embeddings && layout.pp > 1 && param.role == Role::embed)
      buffers.tied = local.numel();
  }
  return buffers;
}

std::int64_t noise_scale_bytes(const NoiseScaleBuffers& buffers) {
  return flat_bytes(buffers.tied, DType::f32) + flat_bytes(buffers.partial, DType::f32);
}

}  // namespace

std::int64_t most_micro_batches(const Config& config, const Layout& layout, std::int64_t micro) {
  std::int64_t most = std::max(config.batch.sequences, config.batch.max);
  for (const BatchStep& step : config.batch.schedule) most = std::max(most, step.sequences);
  for (const ScriptedSwitch& entry : config.adapt.script)
    most = std::max(most, entry.batch.value_or(0));
  return std::max<std::int64_t>(1, most / (layout.dp * micro));
}

std::int64_t MemoryPlan::total() const {
  std::int64_t sum = 0;
  for (const MemorySegment& segment : segments) sum += segment.bytes;
  return sum;
}

std::int64_t MemoryPlan::bytes(std::string_view segment) const {
  for (const MemorySegment& candidate : segments) {
    if (candidate.name == segment) return candidate.bytes;
  }
  detail::check_failed("segment", "no memory segment " + std::string(segment), __FILE__, __LINE__);
}

bool is_kept(Saved tensor, Recompute recompute) {
  switch (recompute) {
    case Recompute::none:
      return true;
    case Recompute::selective:
      return tensor != Saved::att && tensor != Saved::lse;
    case Recompute::full:
      return tensor == Saved::x_in;
  }
  return true;
}

NoiseScaleBuffers noise_scale_buffers(const ModelConfig& model, const Layout& layout, int pp_rank) {
  return noise_scale_part(model, layout, flat_layout(model, layout, 0, pp_rank));
}

StageElements stage_elements(const ModelConfig& model, const Layout& layout, int pp_rank) {
  // Padding makes all tp ranks of a stage alike.
  FlatLayout const flat = flat_layout(model, layout, 0, pp_rank);
  return {flat.numel, flat.state_numel, noise_scale_part(model, layout, flat)};
}

MemoryPlan memory_plan(const ModelConfig& model, const Layout& layout, std::int64_t micro,
                       std::int64_t accumulation, Precision precision, Recompute recompute,
                       int pp_rank, bool noise_scale, AttentionLibrary library) {
  return memory_plan(model, layout, micro, accumulation, precision, recompute, pp_rank,
                     stage_elements(model, layout, pp_rank), noise_scale, library);
}

MemoryPlan memory_plan(const ModelConfig& model, const Layout& layout, std::int64_t micro,
                       std::int64_t accumulation, Precision precision, Recompute recompute,
                       int pp_rank, const StageElements& elements, bool noise_scale,
                       AttentionLibrary library) {
  Stage const stage{model, layout, micro, accumulation, precision, recompute, pp_rank, library};
  DType const compute = compute_type(precision);
  bool const cut = layout.zero > 0 && layout.dp > 1;
  std::int64_t const state =
      flat_bytes(cut ? elements.state_numel / layout.dp : elements.state_numel, DType::f32);
  bool const master_is_weights = compute == DType::f32 && !cut;
  return {{{"weights", flat_bytes(elements.numel, compute)},
           {"gradients", flat_bytes(elements.numel, DType::f32)},
           {"master", master_is_weights ? 0 : state},
           {"adam_m", state},
           {"adam_v", state},
           {"saved", saved_bytes(stage)},
           {"recompute", layer_bytes(stage, false)},
           {"scratch", scratch_bytes(stage)},
           {"attention", attention_bytes(stage)},
           {"head", head_bytes(stage)},
           {"batch", batch_bytes(stage)},
           {"communication", communication_bytes(stage)},
           {"tied_gradient", tied_gradient_bytes(stage)},
           {"noise_scale", noise_scale ? noise_scale_bytes(elements.noise_scale) : 0}}};
}

StageMemory worst_stage(const ModelConfig& model, const Layout& layout, std::int64_t micro,
                        std::int64_t accumulation, Precision precision, Recompute recompute,
                        bool noise_scale, AttentionLibrary library) {
  std::vector<StageElements> elements;
  for (int pp_rank = 0; pp_rank < layout.pp; ++pp_rank) {
    elements.push_back(stage_elements(model, layout, pp_rank));
  }
  return worst_stage(model, layout, micro, accumulation, precision, recompute, elements,
                     noise_scale, library);
}

StageMemory worst_stage(const ModelConfig& model, const Layout& layout, std::int64_t micro,
                        std::int64_t accumulation, Precision precision, Recompute recompute,
                        const std::vector<StageElements>& elements, bool noise_scale,
                        AttentionLibrary library) {
  StageMemory worst;
  for (int pp_rank = 0; pp_rank < layout.pp; ++pp_rank) {
    MemoryPlan plan =
        memory_plan(model, layout, micro, accumulation, precision, recompute, pp_rank,
                    elements[static_cast<std::size_t>(pp_rank)], noise_scale, library);
    if (pp_rank == 0 || plan.total() > worst.plan.total()) worst = {pp_rank, std::move(plan)};
  }
  return worst;
}

}  // namespace copus
