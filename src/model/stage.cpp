#include "copus/model/stage.h"

#include <algorithm>

#include "copus/core/error.h"
#include "copus/model/rope.h"
#include "model/block.h"
#include "model/embedding.h"
#include "model/head.h"

namespace copus {
namespace {

TensorView take(Arena& arena, const TensorSpec& spec) {
  auto const& n = spec.size;
  switch (spec.dims) {
    case 1:
      return arena.take(spec.dtype, {n[0]});
    case 2:
      return arena.take(spec.dtype, {n[0], n[1]});
    case 3:
      return arena.take(spec.dtype, {n[0], n[1], n[2]});
    default:
      return arena.take(spec.dtype, {n[0], n[1], n[2], n[3]});
  }
}

std::vector<TensorView> take_all(Arena& arena, const std::vector<TensorSpec>& specs) {
  std::vector<TensorView> views;
  for (const TensorSpec& spec : specs) views.push_back(take(arena, spec));
  return views;
}

std::int64_t bytes_of(const std::vector<TensorSpec>& specs) {
  std::int64_t bytes = 0;
  for (const TensorSpec& spec : specs) bytes += spec.bytes();
  return bytes;
}

std::int64_t saved_sets(const ModelConfig& model, StageUse use) {
  return use == StageUse::train ? model.layers : std::min<std::int64_t>(2, model.layers);
}

BlockContext context_of(const ModelConfig& model, const Layout& layout, Backend& backend,
                        std::int64_t micro, std::uint64_t seed, const MicroBatch& batch,
                        bool training) {
  return {model,
          layout,
          backend,
          micro,
          training ? static_cast<float>(model.dropout) : 0.0f,
          seed,
          batch.step,
          batch.first_sample};
}

}  // namespace

std::int64_t Stage::arena_bytes(const ModelConfig& model, const Layout& layout, std::int64_t micro,
                                StageUse use) {
  return saved_sets(model, use) * bytes_of(saved_tensors(model, layout, micro)) +
         bytes_of(scratch_tensors(model, layout, micro)) +
         bytes_of(head_tensors(model, layout, micro));
}

Stage::Stage(const ModelConfig& model, const Layout& layout, const FlatLayout& flat,
             std::int64_t micro, std::uint64_t seed, Backend& backend, Arena& arena,
             const TensorView& weights, const TensorView& gradients)
    : model_(model),
      layout_(layout),
      micro_(micro),
      seed_(seed),
      backend_(backend),
      host_losses_(static_cast<std::size_t>(micro * model.seq_len)) {
  std::vector<Param> const table = parameter_table(model);
  weights_ = stage_weights(model, table, flat, weights);
  if (gradients) gradients_ = stage_weights(model, table, flat, gradients);
  std::int64_t const sets = saved_sets(model, gradients ? StageUse::train : StageUse::evaluate);
  for (std::int64_t i = 0; i < sets; ++i) {
    saved_.push_back(take_all(arena, saved_tensors(model, layout, micro)));
  }
  scratch_ = take_all(arena, scratch_tensors(model, layout, micro));
  head_ = take_all(arena, head_tensors(model, layout, micro));
  if (!model.is_gpt2()) {
    backend.upload(pick(scratch_, Scratch::rope), rope_table(model, model.seq_len).data());
  }
}

void Stage::forward(const MicroBatch& batch, bool training) {
  std::size_t const rows = static_cast<std::size_t>(micro_ * model_.seq_len);
  COPUS_CHECK(batch.ids.size() == rows && batch.targets.size() == rows,
              "a micro-batch has the stage's size");
  BlockContext const c = context_of(model_, layout_, backend_, micro_, seed_, batch, training);
  backend_.upload(pick(scratch_, Scratch::ids), batch.ids.data());
  backend_.upload(pick(scratch_, Scratch::targets), batch.targets.data());
  embedding_forward(c, weights_, pick(saved_[0], Saved::x_in), pick(scratch_, Scratch::ids));
  std::size_t const sets = saved_.size(), layers = weights_.layers.size();
  for (std::size_t l = 0; l < layers; ++l) {
    TensorView const x_out =
        l + 1 < layers ? pick(saved_[(l + 1) % sets], Saved::x_in) : pick(head_, Head::x_final);
    block_forward(c, static_cast<int>(l), weights_.layers[l], saved_[l % sets], scratch_, x_out);
  }
}

double Stage::forward_backward(const MicroBatch& batch) {
  COPUS_CHECK(saved_.size() == weights_.layers.size(), "only a stage with gradients trains");
  forward(batch, true);
  BlockContext const c = context_of(model_, layout_, backend_, micro_, seed_, batch, true);
  TensorView const d_x = pick(scratch_, Scratch::d_x);
  double const loss = head_loss_and_backward(c, weights_, gradients_, head_,
                                             pick(scratch_, Scratch::targets), d_x, host_losses_);
  for (std::size_t l = saved_.size(); l-- > 0;) {
    block_backward(c, static_cast<int>(l), weights_.layers[l], gradients_.layers[l], saved_[l],
                   scratch_);
  }
  embedding_backward(c, gradients_, d_x, pick(scratch_, Scratch::ids));
  return loss;
}

double Stage::evaluate(const MicroBatch& batch) {
  forward(batch, false);
  BlockContext const c = context_of(model_, layout_, backend_, micro_, seed_, batch, false);
  return head_loss(c, weights_, head_, pick(scratch_, Scratch::targets), host_losses_);
}

}  // namespace copus
