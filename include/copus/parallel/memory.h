// What a stage's rank keeps in device memory, by name and byte.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "copus/core/config.h"
#include "copus/parallel/activations.h"
#include "copus/parallel/layout.h"

namespace copus {

struct MemorySegment {
  std::string name;
  std::int64_t bytes = 0;
};

// The same segments in the same order for every stage, 0 where a stage has none:
//   weights gradients master adam_m adam_v   flat buffers; master is 0 where the weights are it
//                                            (fp32, not cut by ZeRO)
//   saved          activations of the live micro-batches (live_peak)
//   recompute      what one layer saves beyond what is kept, made again in backward
//   scratch        shared by all layers
//   attention      what the workspace of the device's attention library needs beyond the part of
//                  scratch that it lies over (Scratch::attention); 0 where our own kernels compute
//   head           final norm, logits and loss of one micro-batch, last stage
//   batch          ids on the first and targets on the last stage, of one micro-batch
//   communication  messages between stages that have no other place: an output and an input on
//                  their way, an output's gradient on its way in (message_tensors)
//   tied_gradient  the last stage's part of a tied embedding's gradient, on the first stage
//   noise_scale    what measuring the noise scale keeps aside: a tied embedding's gradient after
//                  the first micro-batch on its two stages, and the largest gradient that is
//                  partial over tp; nothing for other models and layouts
struct MemoryPlan {
  std::vector<MemorySegment> segments;

  std::int64_t total() const;
  std::int64_t bytes(std::string_view segment) const;
};

// `accumulation`: micro-batches of a step on one data-parallel rank. `library`: the device's. The
// matrix library's workspace, partial sums and transport buffers that a device adds are not in
// here.
MemoryPlan memory_plan(const ModelConfig& model, const Layout& layout, std::int64_t micro,
                       std::int64_t accumulation, Precision precision, Recompute recompute,
                       int pp_rank, bool noise_scale = false,
                       AttentionLibrary library = AttentionLibrary::none);

// The most micro-batches a step of the run has on one data-parallel rank, whoever decides on its
// batch: what its memory is planned for.
std::int64_t most_micro_batches(const Config& config, const Layout& layout, std::int64_t micro);

// Elements of the two parts of noise_scale.
struct NoiseScaleBuffers {
  std::int64_t tied = 0, partial = 0;
};
NoiseScaleBuffers noise_scale_buffers(const ModelConfig& model, const Layout& layout, int pp_rank);

// Elements of a stage's buffers that follow from its parameters alone: one value for every
// micro-batch, recompute mode and ZeRO stage of a layout.
struct StageElements {
  std::int64_t numel = 0, state_numel = 0;  // as in FlatLayout
  NoiseScaleBuffers noise_scale;
};
StageElements stage_elements(const ModelConfig& model, const Layout& layout, int pp_rank);
// The same plan, for a caller that asks for many of them.
MemoryPlan memory_plan(const ModelConfig& model, const Layout& layout, std::int64_t micro,
                       std::int64_t accumulation, Precision precision, Recompute recompute,
                       int pp_rank, const StageElements& elements, bool noise_scale,
                       AttentionLibrary library = AttentionLibrary::none);

// The stage that needs most (the first of equals): its rank and plan.
struct StageMemory {
  int pp_rank = 0;
  MemoryPlan plan;
};
StageMemory worst_stage(const ModelConfig& model, const Layout& layout, std::int64_t micro,
                        std::int64_t accumulation, Precision precision, Recompute recompute,
                        bool noise_scale = false,
                        AttentionLibrary library = AttentionLibrary::none);
StageMemory worst_stage(const ModelConfig& model, const Layout& layout, std::int64_t micro,
                        std::int64_t accumulation, Precision precision, Recompute recompute,
                        const std::vector<StageElements>& elements,  // by stage
                        bool noise_scale, AttentionLibrary library = AttentionLibrary::none);

// Whether a layer's tensor is kept from forward to backward, or made again: none keeps all,
// selective makes attention's output again from qkv, full keeps the block's input alone.
bool is_kept(Saved tensor, Recompute recompute);

}  // namespace copus
