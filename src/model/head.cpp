#include "model/head.h"

#include <algorithm>

namespace copus {
namespace {

void final_norm(const BlockContext& c, const StageWeights& w, const std::vector<TensorView>& head) {
  norm_forward(c, pick(head, Head::final_norm), pick(head, Head::final_mean),
               pick(head, Head::final_rstd), pick(head, Head::x_final), w.final_norm,
               w.final_norm_bias);
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

void piece_loss(const BlockContext& c, const StageWeights& w, const Piece& p) {
  linear_forward(c.backend, p.logits, p.x, w.head, {});
  c.backend.cross_entropy_stats(p.row_max, p.row_sum, p.target_logit, p.logits, p.targets, 0,
                                c.model.vocab);
  c.backend.cross_entropy_loss(p.losses, p.row_max, p.row_sum, p.target_logit, p.targets);
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
  std::int64_t const rows = c.rows(), step = pick(head, Head::logits).size[0];
  for (std::int64_t begin = 0; begin < rows; begin += step) {
    piece_loss(c, w, piece_of(head, targets, begin, std::min(step, rows - begin)));
  }
  return summed(c, head, losses);
}

double head_loss_and_backward(const BlockContext& c, const StageWeights& w, const StageWeights& d_w,
                              const std::vector<TensorView>& head, const TensorView& targets,
                              TensorView d_x, std::vector<float>& losses) {
  final_norm(c, w, head);
  std::int64_t const rows = c.rows(), step = pick(head, Head::logits).size[0];
  const TensorView& d_final = pick(head, Head::d_final);
  for (std::int64_t begin = 0; begin < rows; begin += step) {
    std::int64_t const count = std::min(step, rows - begin);
    Piece const p = piece_of(head, targets, begin, count);
    piece_loss(c, w, p);
    // The logits become their own gradient: they are never held twice.
    c.backend.cross_entropy_backward(p.logits, p.row_max, p.row_sum, p.targets, 0, c.model.vocab);
    linear_backward(c.backend, d_final.slice(0, begin, count), d_w.head, {}, p.logits, p.x, w.head);
  }
  c.backend.zero(d_x);
  norm_backward(c, d_x, d_w.final_norm, d_w.final_norm_bias, d_final, pick(head, Head::x_final),
                w.final_norm, pick(head, Head::final_mean), pick(head, Head::final_rstd));
  return summed(c, head, losses);
}

}  // namespace copus
