// The attention branch: projections, rotary positions, causal attention with grouped kv heads.
#include <cmath>

#include "model/block.h"

namespace copus {
namespace {

struct Parts {
  TensorView q, k, v;  // (B, T, heads, D)
};
Parts parts_of(const TensorView& qkv, const TensorView& att) {
  std::int64_t const h = att.size[2], k = (qkv.size[2] - h) / 2;
  return {qkv.slice(2, 0, h), qkv.slice(2, h, k), qkv.slice(2, h + k, k)};
}

TensorView as_rows(const TensorView& x) {  // (B, T, heads, D) -> (N, heads D)
  return x.reshape({x.size[0] * x.size[1], x.size[2] * x.size[3]});
}

void turn(const BlockContext& c, const Parts& parts, const std::vector<TensorView>& scratch,
          bool inverse) {
  if (c.model.is_gpt2()) return;
  const TensorView& table = pick(scratch, Scratch::rope);
  c.backend.rope(parts.q, table, 0, inverse);
  c.backend.rope(parts.k, table, 0, inverse);
}

AttentionOptions options_of(const BlockContext& c, int layer,
                            const std::vector<TensorView>& scratch) {
  AttentionOptions options;
  options.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(c.model.head_dim())));
  options.dropout = c.dropout_at(layer, BlockContext::Place::attention,
                                 c.model.heads * c.model.seq_len * c.model.seq_len);
  options.first_head = c.model.heads / c.layout.tp * c.rows.tp.rank();
  options.global_heads = c.model.heads;
  options.workspace = pick(scratch, Scratch::attention);
  return options;
}

}  // namespace

void attention_core(const BlockContext& c, int layer, const std::vector<TensorView>& saved,
                    const std::vector<TensorView>& scratch) {
  const TensorView& att = pick(saved, Saved::att);
  Parts const parts = parts_of(pick(saved, Saved::qkv), att);
  c.backend.attention(att, pick(saved, Saved::lse), parts.q, parts.k, parts.v,
                      options_of(c, layer, scratch));
}

void attention_forward(const BlockContext& c, int layer, const LayerWeights& w,
                       const std::vector<TensorView>& saved,
                       const std::vector<TensorView>& scratch) {
  const TensorView& qkv = pick(saved, Saved::qkv);
  const TensorView& att = pick(saved, Saved::att);
  const TensorView& branch = pick(scratch, Scratch::branch);
  linear_forward(c.backend, as_rows(qkv), pick(saved, Saved::norm1), w.qkv, w.qkv_bias);
  Parts const parts = parts_of(qkv, att);
  turn(c, parts, scratch, false);
  attention_core(c, layer, saved, scratch);
  linear_forward(c.backend, branch, as_rows(att), w.attn_out, c.bias_of_sum(w.attn_out_bias));
  c.rows.sum(branch);
  c.drop_rows(layer, BlockContext::Place::attention_branch, c.rows.own(branch));
}

void attention_backward(const BlockContext& c, int layer, const LayerWeights& w,
                        const LayerWeights& d_w, const std::vector<TensorView>& saved,
                        const std::vector<TensorView>& scratch) {
  const TensorView& att = pick(saved, Saved::att);
  const TensorView& d_att = pick(scratch, Scratch::d_att);
  const TensorView& d_qkv = pick(scratch, Scratch::d_qkv);
  TensorView const d_branch =
      branch_gradient(c, layer, BlockContext::Place::attention_branch, scratch);
  linear_backward(c.backend, as_rows(d_att), d_w.attn_out, d_w.attn_out_bias, d_branch,
                  as_rows(att), w.attn_out, !c.first_micro);
  Parts const parts = parts_of(pick(saved, Saved::qkv), att), d_parts = parts_of(d_qkv, d_att);
  c.backend.attention_backward(d_parts.q, d_parts.k, d_parts.v, d_att, parts.q, parts.k, parts.v,
                               att, pick(saved, Saved::lse), options_of(c, layer, scratch));
  turn(c, d_parts, scratch, true);
  const TensorView& d_norm = pick(scratch, Scratch::branch);
  linear_backward(c.backend, d_norm, d_w.qkv, d_w.qkv_bias, as_rows(d_qkv),
                  pick(saved, Saved::norm1), w.qkv, !c.first_micro);
  c.rows.sum(d_norm);
}

}  // namespace copus
