// One transformer block, forward and backward, as free functions over views.
#pragma once
#include "copus/backend/backend.h"
#include "copus/model/weights.h"
#include "copus/parallel/activations.h"
#include "model/tp_rows.h"

namespace copus {

// What a block's code needs besides its weights and tensors.
struct BlockContext {
  const ModelConfig& model;
  const Layout& layout;
  Backend& backend;
  TpRows rows;
  std::int64_t micro = 0;
  // Dropout: off when p is 0. The keys are those of the micro-batch.
  float dropout = 0.0f;
  std::uint64_t seed = 0;
  std::uint32_t step = 0;
  std::int64_t first_sample = 0;
  bool first_micro = false;  // of the step: gradients of matrices are written, not added to

  std::int64_t row_count() const { return micro * model.seq_len; }  // N
  // Where dropout applies inside layer `layer` (or in the embedding: layer -1).
  enum class Place : std::uint32_t { embedding, attention, attention_branch, ffn_branch };
  Dropout dropout_at(int layer, Place place, std::int64_t elements_per_sample) const;
  // In place on this rank's rows of the residual stream.
  void drop_rows(int layer, Place place, const TensorView& own_rows) const;
  // A bias that every rank of the group holds is added by the first alone, before partial values
  // are summed.
  TensorView bias_of_sum(const TensorView& bias) const {
    return rows.tp.rank() == 0 ? bias : TensorView{};
  }
};

// Picks one of a list of tensors by its enumerator.
template <class Kind>
const TensorView& pick(const std::vector<TensorView>& tensors, Kind kind) {
  return tensors[static_cast<std::size_t>(kind)];
}

// RMSNorm, or GPT-2's LayerNorm, of x or of the sum that is written there.
void norm_forward(const BlockContext& c, TensorView out, TensorView mean, TensorView rstd,
                  const TensorView& x, const TensorView& gain, const TensorView& bias,
                  const Addends& sum = {});
// d_x, d_gain and d_bias add.
void norm_backward(const BlockContext& c, TensorView d_x, TensorView d_gain, TensorView d_bias,
                   const TensorView& d_out, const TensorView& x, const TensorView& gain,
                   const TensorView& mean, const TensorView& rstd);

// x_mid = x_in + attention(norm1(x_in)) and the branch ffn(norm2(x_mid)), which is left in own rows
// of scratch[branch]; x_in is saved[Saved::x_in]. `normed`: norm1(x_in) is there already.
void block_forward(const BlockContext& c, int layer, const LayerWeights& w,
                   const std::vector<TensorView>& saved, const std::vector<TensorView>& scratch,
                   bool normed);
// x_out = x_mid + branch, after block_forward: the end of a chunk, or x_in of the next layer with
// its first norm on top.
void block_end(const BlockContext& c, const std::vector<TensorView>& saved,
               const std::vector<TensorView>& scratch, TensorView x_out);
void block_next(const BlockContext& c, const std::vector<TensorView>& saved,
                const std::vector<TensorView>& scratch, const LayerWeights& next,
                const std::vector<TensorView>& next_saved);
// Makes again what `recompute` did not keep, from what it kept: attention's output from qkv, or
// everything from x_in. The same operations on the same values, so the same bits.
void block_recompute(const BlockContext& c, int layer, const LayerWeights& w,
                     const std::vector<TensorView>& saved, const std::vector<TensorView>& scratch,
                     Recompute recompute);
// scratch[d_x] comes in as the gradient of x_out and leaves as that of x_in; weight gradients add.
void block_backward(const BlockContext& c, int layer, const LayerWeights& w,
                    const LayerWeights& d_w, const std::vector<TensorView>& saved,
                    const std::vector<TensorView>& scratch);

// The two branches. Forward leaves own rows of scratch[branch]; backward takes scratch[d_x] and
// leaves the gradient of the branch's normalised input in own rows of scratch[branch].
void attention_forward(const BlockContext& c, int layer, const LayerWeights& w,
                       const std::vector<TensorView>& saved,
                       const std::vector<TensorView>& scratch);
void attention_backward(const BlockContext& c, int layer, const LayerWeights& w,
                        const LayerWeights& d_w, const std::vector<TensorView>& saved,
                        const std::vector<TensorView>& scratch);
// The first half of mlp_forward: saved[gate_up] and saved[ffn] from saved[norm2].
void mlp_hidden(const BlockContext& c, const LayerWeights& w, const std::vector<TensorView>& saved);
// Attention itself: saved[att] and saved[lse] from saved[qkv].
void attention_core(const BlockContext& c, int layer, const std::vector<TensorView>& saved,
                    const std::vector<TensorView>& scratch);
void mlp_forward(const BlockContext& c, int layer, const LayerWeights& w,
                 const std::vector<TensorView>& saved, const std::vector<TensorView>& scratch);
void mlp_backward(const BlockContext& c, int layer, const LayerWeights& w, const LayerWeights& d_w,
                  const std::vector<TensorView>& saved, const std::vector<TensorView>& scratch);

// y = x W^T + b, and its gradients: d_x (overwritten), d_w (added to or overwritten) and d_b (added
// to).
void linear_forward(Backend& backend, TensorView y, const TensorView& x, const TensorView& w,
                    const TensorView& bias);
void linear_backward(Backend& backend, TensorView d_x, TensorView d_w, TensorView d_bias,
                     const TensorView& d_y, const TensorView& x, const TensorView& w, bool adds);

// The gradient of a branch's output, all rows: d_x under the branch's dropout mask.
TensorView branch_gradient(const BlockContext& c, int layer, BlockContext::Place place,
                           const std::vector<TensorView>& scratch);

}  // namespace copus
