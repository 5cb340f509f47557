#include "model/block.h"

namespace copus {

Dropout BlockContext::dropout_at(int layer, Place place, std::int64_t elements_per_sample) const {
  std::uint32_t const where =
      static_cast<std::uint32_t>(layer + 1) * 4u + static_cast<std::uint32_t>(place);
  return {dropout, stream_of({seed, RngPurpose::dropout, step, where}),
          static_cast<std::uint64_t>(first_sample * elements_per_sample)};
}

void BlockContext::drop_rows(int layer, Place place, const TensorView& own_rows) const {
  if (dropout == 0.0f) return;
  Dropout options = dropout_at(layer, place, model.seq_len * model.hidden);
  options.first += static_cast<std::uint64_t>(rows.first_own(row_count()) * model.hidden);
  backend.dropout(own_rows, options);
}

void norm_forward(const BlockContext& c, TensorView out, TensorView mean, TensorView rstd,
                  const TensorView& x, const TensorView& gain, const TensorView& bias,
                  const Addends& sum) {
  float const eps = static_cast<float>(c.model.norm_eps);
  if (c.model.is_gpt2()) {
    c.backend.layer_norm(out, mean, rstd, x, gain, bias, eps, sum);
  } else {
    c.backend.rms_norm(out, rstd, x, gain, eps, sum);
  }
}

void norm_backward(const BlockContext& c, TensorView d_x, TensorView d_gain, TensorView d_bias,
                   const TensorView& d_out, const TensorView& x, const TensorView& gain,
                   const TensorView& mean, const TensorView& rstd) {
  if (c.model.is_gpt2()) {
    c.backend.layer_norm_backward(d_x, d_gain, d_bias, d_out, x, gain, mean, rstd);
  } else {
    c.backend.rms_norm_backward(d_x, d_gain, d_out, x, gain, rstd);
  }
}

void linear_forward(Backend& backend, TensorView y, const TensorView& x, const TensorView& w,
                    const TensorView& bias) {
  backend.matmul(y, x, w, {.transpose_b = true}, bias);
}

void linear_backward(Backend& backend, TensorView d_x, TensorView d_w, TensorView d_bias,
                     const TensorView& d_y, const TensorView& x, const TensorView& w, bool adds) {
  backend.matmul(d_x, d_y, w, {});
  backend.matmul(d_w, d_y, x, {.transpose_a = true, .accumulate = adds});
  if (d_bias) backend.column_sum(d_bias, d_y);
}

TensorView branch_gradient(const BlockContext& c, int layer, BlockContext::Place place,
                           const std::vector<TensorView>& scratch) {
  const TensorView& d_x = pick(scratch, Scratch::d_x);
  if (c.dropout == 0.0f && !c.rows.sequence_parallel) return d_x;
  const TensorView& branch = pick(scratch, Scratch::branch);
  TensorView const own = c.rows.own(branch);
  c.backend.copy(own, d_x);
  c.drop_rows(layer, place, own);
  c.rows.gather(branch);
  return branch;
}

namespace {

void first_norm(const BlockContext& c, const LayerWeights& w, const std::vector<TensorView>& saved,
                const Addends& sum) {
  norm_forward(c, c.rows.own(pick(saved, Saved::norm1)), pick(saved, Saved::mean1),
               pick(saved, Saved::rstd1), pick(saved, Saved::x_in), w.norm1, w.norm1_bias, sum);
}

// From norm1 to the normalised input of the feed-forward branch.
void block_body(const BlockContext& c, int layer, const LayerWeights& w,
                const std::vector<TensorView>& saved, const std::vector<TensorView>& scratch) {
  const TensorView& x_in = pick(saved, Saved::x_in);
  const TensorView& x_mid = pick(saved, Saved::x_mid);
  c.rows.gather(pick(saved, Saved::norm1));
  attention_forward(c, layer, w, saved, scratch);
  norm_forward(c, c.rows.own(pick(saved, Saved::norm2)), pick(saved, Saved::mean2),
               pick(saved, Saved::rstd2), x_mid, w.norm2, w.norm2_bias,
               {x_in, c.rows.own(pick(scratch, Scratch::branch))});
  c.rows.gather(pick(saved, Saved::norm2));
}

}  // namespace

void block_forward(const BlockContext& c, int layer, const LayerWeights& w,
                   const std::vector<TensorView>& saved, const std::vector<TensorView>& scratch,
                   bool normed) {
  if (!normed) first_norm(c, w, saved, {});
  block_body(c, layer, w, saved, scratch);
  mlp_forward(c, layer, w, saved, scratch);
}

void block_end(const BlockContext& c, const std::vector<TensorView>& saved,
               const std::vector<TensorView>& scratch, TensorView x_out) {
  c.backend.add(x_out, pick(saved, Saved::x_mid), c.rows.own(pick(scratch, Scratch::branch)));
}

void block_next(const BlockContext& c, const std::vector<TensorView>& saved,
                const std::vector<TensorView>& scratch, const LayerWeights& next,
                const std::vector<TensorView>& next_saved) {
  first_norm(c, next, next_saved,
             {pick(saved, Saved::x_mid), c.rows.own(pick(scratch, Scratch::branch))});
}

void block_recompute(const BlockContext& c, int layer, const LayerWeights& w,
                     const std::vector<TensorView>& saved, const std::vector<TensorView>& scratch,
                     Recompute recompute) {
  if (recompute == Recompute::selective) attention_core(c, layer, saved, scratch);
  if (recompute == Recompute::full) {
    first_norm(c, w, saved, {});
    block_body(c, layer, w, saved, scratch);
    mlp_hidden(c, w, saved);
  }
}

void block_backward(const BlockContext& c, int layer, const LayerWeights& w,
                    const LayerWeights& d_w, const std::vector<TensorView>& saved,
                    const std::vector<TensorView>& scratch) {
  const TensorView& d_x = pick(scratch, Scratch::d_x);
  TensorView const d_norm = c.rows.own(pick(scratch, Scratch::branch));
  mlp_backward(c, layer, w, d_w, saved, scratch);
  norm_backward(c, d_x, d_w.norm2, d_w.norm2_bias, d_norm, pick(saved, Saved::x_mid), w.norm2,
                pick(saved, Saved::mean2), pick(saved, Saved::rstd2));
  attention_backward(c, layer, w, d_w, saved, scratch);
  norm_backward(c, d_x, d_w.norm1, d_w.norm1_bias, d_norm, pick(saved, Saved::x_in), w.norm1,
                pick(saved, Saved::mean1), pick(saved, Saved::rstd1));
}

}  // namespace copus
