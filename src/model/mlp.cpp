// The feed-forward branch: SwiGLU (Shazeer 2020), or GPT-2's GELU.
#include "model/block.h"

namespace copus {
namespace {

struct Halves {
  TensorView gate, up;  // (N, F) each, rows strided
};
Halves halves(const TensorView& gate_up) {
  std::int64_t const f = gate_up.size[1] / 2;
  return {gate_up.slice(1, 0, f), gate_up.slice(1, f, f)};
}

}  // namespace

void mlp_hidden(const BlockContext& c, const LayerWeights& w,
                const std::vector<TensorView>& saved) {
  const TensorView& gate_up = pick(saved, Saved::gate_up);
  const TensorView& ffn = pick(saved, Saved::ffn);
  linear_forward(c.backend, gate_up, pick(saved, Saved::norm2), w.gate_up, w.gate_up_bias);
  if (c.model.is_gpt2()) {
    c.backend.gelu(ffn, gate_up);
  } else {
    auto const [gate, up] = halves(gate_up);
    c.backend.swiglu(ffn, gate, up);
  }
}

void mlp_forward(const BlockContext& c, int layer, const LayerWeights& w,
                 const std::vector<TensorView>& saved, const std::vector<TensorView>& scratch) {
  const TensorView& branch = pick(scratch, Scratch::branch);
  mlp_hidden(c, w, saved);
  linear_forward(c.backend, branch, pick(saved, Saved::ffn), w.down, c.bias_of_sum(w.down_bias));
  c.rows.sum(branch);
  c.drop_rows(layer, BlockContext::Place::ffn_branch, c.rows.own(branch));
}

void mlp_backward(const BlockContext& c, int layer, const LayerWeights& w, const LayerWeights& d_w,
                  const std::vector<TensorView>& saved, const std::vector<TensorView>& scratch) {
  const TensorView& gate_up = pick(saved, Saved::gate_up);
  const TensorView& d_ffn = pick(scratch, Scratch::d_ffn);
  const TensorView& d_gate_up = pick(scratch, Scratch::d_gate_up);
  TensorView const d_branch = branch_gradient(c, layer, BlockContext::Place::ffn_branch, scratch);
  linear_backward(c.backend, d_ffn, d_w.down, d_w.down_bias, d_branch, pick(saved, Saved::ffn),
                  w.down, !c.first_micro);
  if (c.model.is_gpt2()) {
    c.backend.gelu_backward(d_gate_up, d_ffn, gate_up);
  } else {
    auto const [gate, up] = halves(gate_up);
    auto const [d_gate, d_up] = halves(d_gate_up);
    c.backend.swiglu_backward(d_gate, d_up, d_ffn, gate, up);
  }
  const TensorView& d_norm = pick(scratch, Scratch::branch);
  linear_backward(c.backend, d_norm, d_w.gate_up, d_w.gate_up_bias, d_gate_up,
                  pick(saved, Saved::norm2), w.gate_up, !c.first_micro);
  c.rows.sum(d_norm);
}

}  // namespace copus
