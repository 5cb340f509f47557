#include "model/head.h"

#include <algorithm>

namespace copus {
namespace {

void final_norm(const BlockContext& c, const StageWeights& w, const std::vector<TensorView>& head) {
  const TensorView& out = pick(head, Head::final_norm);
  norm_forward(c, c.rows.own(out), pick(head, Head::final_mean), pick(head, Head::final_rstd),
               pick(head, Head::x_final), w.final_norm, w.final_norm_bias);
  c.rows.gather(out);
}

// The columns of the vocabulary that this rank of the group holds, padding left out.
struct Columns {
  std::int64_t first = 0, valid = 0;
};
Columns columns_of(const BlockContext& c, const StageWeights& w) {
  std::int64_t const width = w.head.size[0], first = width * c.rows.tp.rank();
  return {first, std::clamp<std::int64_t>(c.model.vocab - first, 0, width)};
}

// Rows [begin, begin + count) of what the loss works on.
struct Piece {
  TensorView x, logits, targets, row_max, row_sum, target_logit, losses;
};
Piece piece_of(const std::vector<TensorView>& head, const TensorView& targets, std::int64_t begin,
               std::int64_t count) {
  auto const rows = [&](Head kind) { return pick(head, kind).slice(0, begin, count); };
  return {rows(Head::final_norm),
          pick(head, Head::logits).slice(0, 0, count),
          targets.slice(0, begin, count),
          rows(Head::row_max),
          rows(Head::row_sum),
          rows(Head::target_logit),
          rows(Head::losses)};
}

// tp: each rank has the logits of its own columns; afterwards the statistics are those of whole
// rows.
void join_columns(const BlockContext& c, const Piece& p) {
  if (c.rows.tp.size() == 1) return;
  const TensorView& global_max = p.losses;
  c.backend.copy(global_max, p.row_max);
  c.rows.tp.all_reduce(global_max, ReduceOp::max);
  c.backend.cross_entropy_rescale(p.row_sum, p.row_max, global_max);
  c.rows.tp.all_reduce(p.row_sum, ReduceOp::sum);
  c.rows.tp.all_reduce(p.target_logit, ReduceOp::sum);
}

void piece_loss(const BlockContext& c, const StageWeights& w, const Piece& p) {
  Columns const columns = columns_of(c, w);
  linear_forward(c.backend, p.logits, p.x, w.head, {});
  c.backend.cross_entropy_stats(p.row_max, p.row_sum, p.target_logit, p.logits, p.targets,
                                columns.first, columns.valid);
  join_columns(c, p);
  c.backend.cross_entropy_loss(p.losses, p.row_max, p.row_sum, p.target_logit, p.targets);
}

// The place of the logits' gradient: each row where the logits' begins, in the compute type.
TensorView gradient_over(const TensorView& logits, DType compute) {
  TensorView d_logits = logits;
  d_logits.dtype = compute;
  d_logits.stride[0] = logits.stride[0] * size_of(logits.dtype) / size_of(compute);
  return d_logits;
}

double summed(const BlockContext& c, const std::vector<TensorView>& head,
              std::vector<float>& losses) {
  c.backend.download(losses.data(), pick(head, Head::losses));
  double sum = 0.0;
  for (float loss : losses) sum += static_cast<double>(loss);
  return sum;
}

}  // namespace

double head_loss(const BlockContext& c, const StageWeights& w, const std::vector<TensorView>& head,
                 const TensorView& targets, std::vector<float>& losses) {
  final_norm(c, w, head);
  std::int64_t const rows = c.row_count(), step = pick(head, Head::logits).size[0];
  for (std::int64_t begin = 0; begin < rows; begin += step) {
    piece_loss(c, w, piece_of(head, targets, begin, std::min(step, rows - begin)));
  }
  return summed(c, head, losses);
}

double head_loss_and_backward(const BlockContext& c, const StageWeights& w, const StageWeights& d_w,
                              const std::vector<TensorView>& head, const TensorView& targets,
                              TensorView d_x, std::vector<float>& losses) {
  final_norm(c, w, head);
  std::int64_t const rows = c.row_count(), step = pick(head, Head::logits).size[0];
  const TensorView& d_final = pick(head, Head::d_final);
  Columns const columns = columns_of(c, w);
  for (std::int64_t begin = 0; begin < rows; begin += step) {
    std::int64_t const count = std::min(step, rows - begin);
    Piece const p = piece_of(head, targets, begin, count);
    piece_loss(c, w, p);
    // The logits become their own gradient: they are never held twice.
    TensorView const d_logits = gradient_over(p.logits, p.x.dtype);
    c.backend.cross_entropy_backward(d_logits, p.logits, p.row_max, p.row_sum, p.targets,
                                     columns.first, columns.valid);
    linear_backward(c.backend, d_final.slice(0, begin, count), d_w.head, {}, d_logits, p.x, w.head,
                    begin > 0 || !c.first_micro);
  }
  c.rows.sum(d_final);
  c.backend.zero(d_x);
  norm_backward(c, d_x, d_w.final_norm, d_w.final_norm_bias, c.rows.own(d_final),
                pick(head, Head::x_final), w.final_norm, pick(head, Head::final_mean),
                pick(head, Head::final_rstd));
  return summed(c, head, losses);
}

}  // namespace copus
