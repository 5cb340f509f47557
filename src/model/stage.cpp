#include "copus/model/stage.h"

#include <algorithm>

#include "copus/backend/ranges.h"
#include "copus/core/error.h"
#include "copus/model/rope.h"
#include "copus/parallel/memory.h"
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

// What one layer keeps, or with kept = false what all layers share because it is made again.
std::vector<TensorSpec> saved_specs(const StageSetup& setup, bool kept) {
  std::vector<TensorSpec> specs =
      saved_tensors(setup.model, setup.layout, setup.micro, setup.precision);
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (is_kept(static_cast<Saved>(i), setup.recompute) != kept) specs[i].size = {};
  }
  return specs;
}

std::vector<LayerRange> chunks_of(const StageSetup& setup, int pp_rank) {
  std::vector<LayerRange> chunks;
  for (int c = 0; c < setup.layout.virtual_stages; ++c) {
    chunks.push_back(layers_of(setup.model.layers, setup.layout, pp_rank, c));
  }
  return chunks;
}

std::int64_t sets_of(const StageSetup& setup, const std::vector<LayerRange>& chunks) {
  std::int64_t const layers = chunks.front().end - chunks.front().begin;
  return setup.use == StageUse::train ? layers : std::min<std::int64_t>(2, layers);
}

// Only the last stage works on logits.
std::vector<TensorSpec> head_specs(const StageSetup& setup, int pp_rank) {
  if (pp_rank + 1 != setup.layout.pp) return {};
  return head_tensors(setup.model, setup.layout, setup.micro, setup.precision);
}

std::vector<TensorSpec> scratch_specs(const StageSetup& setup, int pp_rank) {
  std::vector<TensorSpec> specs =
      scratch_tensors(setup.model, setup.layout, setup.micro, setup.precision, setup.library);
  if (pp_rank != 0) specs[static_cast<std::size_t>(Scratch::ids)].size[0] = 0;
  if (pp_rank + 1 != setup.layout.pp) specs[static_cast<std::size_t>(Scratch::targets)].size[0] = 0;
  return specs;
}

std::vector<TensorSpec> message_specs(const StageSetup& setup, int pp_rank) {
  return message_tensors(setup.model, setup.layout, setup.micro, setup.precision, pp_rank);
}

// Attention's workspace: the three tensors that were cut one after the other, for it and for what
// is dead while it computes. Empty where nothing was cut for it and nothing is wanted.
TensorView workspace_of(const StageSetup& setup, const std::vector<TensorView>& scratch) {
  std::int64_t const bytes = attention_workspace_bytes(setup.model, setup.layout, setup.micro,
                                                       setup.precision, setup.library);
  if (bytes == 0) return {};
  auto* first = pick(scratch, Scratch::attention).ptr<std::byte>();
  std::int64_t whole = 0;
  for (Scratch const part : {Scratch::d_gate_up, Scratch::d_ffn, Scratch::attention}) {
    const TensorView& view = pick(scratch, part);
    first = std::min(first, view.ptr<std::byte>());  // an arena may be cut from its high end
    whole += Arena::aligned(view.bytes());
  }
  COPUS_CHECK(whole >= bytes, "the plan of the scratch tensors has attention's workspace");
  return {first, DType::u8, {whole}};
}

BlockContext context_of(const StageSetup& setup, const Mesh& mesh, Backend& backend,
                        const MicroBatch& batch, bool training) {
  return {setup.model,       setup.layout,
          backend,           {mesh.tp(), setup.layout.sequence_parallel},
          setup.micro,       training ? static_cast<float>(setup.model.dropout) : 0.0f,
          setup.seed,        batch.step,
          batch.first_sample};
}

}  // namespace

std::int64_t Stage::arena_bytes(const StageSetup& setup, int pp_rank) {
  return setup.live * sets_of(setup, chunks_of(setup, pp_rank)) *
             bytes_of(saved_specs(setup, true)) +
         bytes_of(saved_specs(setup, false)) + bytes_of(scratch_specs(setup, pp_rank)) +
         bytes_of(head_specs(setup, pp_rank)) + bytes_of(message_specs(setup, pp_rank));
}

Stage::Stage(const StageSetup& setup, const FlatLayout& flat, const Mesh& mesh, Backend& backend,
             Arena& arena, const TensorView& weights, const TensorView& gradients)
    : setup_(setup),
      mesh_(mesh),
      backend_(backend),
      chunks_(chunks_of(setup, mesh.coord().pp)),
      host_losses_(static_cast<std::size_t>(setup.micro * setup.model.seq_len)) {
  std::vector<Param> const table = parameter_table(setup.model);
  weights_ = stage_weights(setup.model, table, flat, weights);
  if (gradients) gradients_ = stage_weights(setup.model, table, flat, gradients);
  std::int64_t const sets = sets_of(setup, chunks_);
  places_.resize(static_cast<std::size_t>(setup.live));
  for (Place& place : places_) {
    for (std::int64_t i = 0; i < sets; ++i)
      place.saved.push_back(take_all(arena, saved_specs(setup, true)));
  }
  // A layer's tensors are its own where they are kept, and the one shared set where they are made
  // again.
  std::vector<TensorView> const shared = take_all(arena, saved_specs(setup, false));
  for (Place& place : places_) {
    for (std::vector<TensorView>& layer : place.saved) {
      for (std::size_t i = 0; i < layer.size(); ++i) {
        if (!is_kept(static_cast<Saved>(i), setup.recompute)) layer[i] = shared[i];
      }
    }
  }
  scratch_ = take_all(arena, scratch_specs(setup, mesh.coord().pp));
  scratch_[static_cast<std::size_t>(Scratch::attention)] = workspace_of(setup, scratch_);
  head_ = take_all(arena, head_specs(setup, mesh.coord().pp));
  if (!head_.empty()) {
    TensorView& logits = head_[static_cast<std::size_t>(Head::logits)];
    logits = logits.slice(1, 0, padded_vocab(setup.model, setup.layout) / setup.layout.tp);
  }
  messages_ = take_all(arena, message_specs(setup, mesh.coord().pp));
}

void Stage::prepare() {
  if (setup_.model.is_gpt2()) return;
  backend_.upload(pick(scratch_, Scratch::rope),
                  rope_table(setup_.model, setup_.model.seq_len).data());
}

bool Stage::is_first(int chunk) const {
  return mesh_.coord().pp == 0 && chunk == 0;
}
bool Stage::is_last(int chunk) const {
  return mesh_.coord().pp + 1 == setup_.layout.pp && chunk + 1 == setup_.layout.virtual_stages;
}

Stage::Place& Stage::take_place(std::int64_t micro, int chunk) {
  for (Place& place : places_) {
    if (place.micro < 0) {
      place.micro = micro;
      place.chunk = chunk;
      return place;
    }
  }
  detail::check_failed("a free place", "no more micro-batches are in flight than the schedule has",
                       __FILE__, __LINE__);
}

Stage::Place& Stage::place_of(std::int64_t micro, int chunk) {
  for (Place& place : places_) {
    if (place.micro == micro && place.chunk == chunk) return place;
  }
  detail::check_failed("a place", "a micro-batch goes forward before it goes backward", __FILE__,
                       __LINE__);
}

void Stage::take_input(std::int64_t micro, int chunk) {
  std::vector<TensorView>& first_layer = take_place(micro, chunk).saved.front();
  std::swap(first_layer[static_cast<std::size_t>(Saved::x_in)],
            messages_[static_cast<std::size_t>(OnTheWay::input)]);
}

void Stage::take_output_gradient() {
  std::swap(scratch_[static_cast<std::size_t>(Scratch::d_x)],
            messages_[static_cast<std::size_t>(OnTheWay::output_gradient)]);
}

TensorView Stage::input_gradient() const {
  return pick(scratch_, Scratch::d_x);
}

void Stage::run_forward(Place& place, const MicroBatch& batch, bool training) {
  BlockContext const c = context_of(setup_, mesh_, backend_, batch, training);
  std::size_t const rows = static_cast<std::size_t>(c.row_count());
  if (is_first(place.chunk)) {
    COPUS_CHECK(batch.ids.size() == rows, "a micro-batch has the stage's size");
    Range const range("embedding");
    backend_.upload(pick(scratch_, Scratch::ids), batch.ids.data());
    need(-1);
    embedding_forward(c, weights_, pick(place.saved.front(), Saved::x_in),
                      pick(scratch_, Scratch::ids), pick(scratch_, Scratch::branch));
  }
  LayerRange const layers = chunks_[static_cast<std::size_t>(place.chunk)];
  TensorView const end = is_last(place.chunk) ? pick(head_, Head::x_final) : output();
  std::size_t const sets = place.saved.size();
  for (std::int64_t l = layers.begin; l < layers.end; ++l) {
    Range const range(training ? "forward of layer" : "evaluation of layer", l);
    auto const at = [&](std::int64_t layer) -> const std::vector<TensorView>& {
      return place.saved[static_cast<std::size_t>(layer - layers.begin) % sets];
    };
    need(l);
    block_forward(c, static_cast<int>(l), weights_.layers[static_cast<std::size_t>(l)], at(l),
                  scratch_, l > layers.begin);
    if (l + 1 == layers.end) {
      block_end(c, at(l), scratch_, end);
    } else {
      need(l + 1);
      block_next(c, at(l), scratch_, weights_.layers[static_cast<std::size_t>(l + 1)], at(l + 1));
    }
  }
  if (is_last(place.chunk)) {
    COPUS_CHECK(batch.targets.size() == rows, "a micro-batch has the stage's size");
    backend_.upload(pick(scratch_, Scratch::targets), batch.targets.data());
    need(setup_.model.layers);  // the head's, by whoever goes on from here
  }
}

void Stage::start_gradients() {
  auto const zero = [&](std::initializer_list<TensorView> views) {
    for (const TensorView& view : views)
      if (view) backend_.zero(view);
  };
  for (const LayerWeights& d : gradients_.layers) {
    zero({d.norm1, d.norm1_bias, d.qkv_bias, d.attn_out_bias, d.norm2, d.norm2_bias, d.gate_up_bias,
          d.down_bias});
  }
  zero({gradients_.positions, gradients_.final_norm, gradients_.final_norm_bias});
  // A head writes the embedding's gradient where the two are one tensor; the embedding adds to it.
  bool const has_head = mesh_.coord().pp + 1 == setup_.layout.pp;
  if (!has_head || !setup_.model.tie_embeddings) zero({gradients_.embed});
}

void Stage::forward(std::int64_t micro, int chunk, const MicroBatch& batch) {
  Place& place = is_first(chunk) ? take_place(micro, chunk) : place_of(micro, chunk);
  run_forward(place, batch, true);
}

double Stage::backward(std::int64_t micro, int chunk, const MicroBatch& batch,
                       const GradientReady& ready) {
  COPUS_CHECK(setup_.use == StageUse::train, "only a stage with gradients trains");
  Place& place = place_of(micro, chunk);
  BlockContext c = context_of(setup_, mesh_, backend_, batch, true);
  c.first_micro = micro == 0;
  TensorView const d_x = pick(scratch_, Scratch::d_x);
  double loss = 0.0;
  if (is_last(chunk)) {
    Range const range("loss and its backward");
    loss = head_loss_and_backward(c, weights_, gradients_, head_, pick(scratch_, Scratch::targets),
                                  d_x, host_losses_);
    ready(setup_.model.layers);
  }
  LayerRange const layers = chunks_[static_cast<std::size_t>(chunk)];
  for (std::int64_t l = layers.end; l-- > layers.begin;) {
    Range const range("backward of layer", l);
    std::size_t const at = static_cast<std::size_t>(l);
    const std::vector<TensorView>& saved = place.saved[static_cast<std::size_t>(l - layers.begin)];
    block_recompute(c, static_cast<int>(l), weights_.layers[at], saved, scratch_, setup_.recompute);
    block_backward(c, static_cast<int>(l), weights_.layers[at], gradients_.layers[at], saved,
                   scratch_);
    ready(l);
  }
  if (is_first(chunk)) {
    Range const range("backward of embedding");
    backend_.upload(pick(scratch_, Scratch::ids),
                    batch.ids.data());  // other micro-batches came in between
    embedding_backward(c, gradients_, d_x, pick(scratch_, Scratch::ids),
                       pick(scratch_, Scratch::branch));
    ready(-1);
  }
  place.micro = -1;
  return loss;
}

double Stage::evaluate(std::int64_t micro, int chunk, const MicroBatch& batch) {
  Place& place = is_first(chunk) ? take_place(micro, chunk) : place_of(micro, chunk);
  run_forward(place, batch, false);
  place.micro = -1;
  if (!is_last(chunk)) return 0.0;
  return head_loss(context_of(setup_, mesh_, backend_, batch, false), weights_, head_,
                   pick(scratch_, Scratch::targets), host_losses_);
}

}  // namespace copus
