#include "model/embedding.h"

namespace copus {
namespace {

TensorView by_sample(const BlockContext& c, const TensorView& x) {
  return x.reshape({c.micro, c.model.seq_len, c.model.hidden});
}
std::int64_t first_row(const BlockContext& c, const TensorView& table) {
  return table.size[0] * c.rows.tp.rank();
}

}  // namespace

void embedding_forward(const BlockContext& c, const StageWeights& w, TensorView x,
                       const TensorView& ids, const TensorView& all_rows) {
  c.backend.embedding(all_rows, ids, w.embed, first_row(c, w.embed));
  // Learned positions are whole on every rank of the group; the sum over it is to hold them once.
  if (w.positions && c.rows.tp.rank() == 0)
    c.backend.add_positions(by_sample(c, all_rows), w.positions, 0);
  c.rows.sum(all_rows);
  c.backend.copy(x, c.rows.own(all_rows));
  c.drop_rows(-1, BlockContext::Place::embedding, x);
}

void embedding_backward(const BlockContext& c, const StageWeights& d_w, TensorView d_x,
                        const TensorView& ids, const TensorView& all_rows) {
  c.drop_rows(-1, BlockContext::Place::embedding, d_x);
  TensorView rows = d_x;
  if (c.rows.sequence_parallel) {
    c.backend.copy(c.rows.own(all_rows), d_x);
    c.rows.gather(all_rows);
    rows = all_rows;
  }
  if (d_w.positions) c.backend.positions_backward(d_w.positions, by_sample(c, rows), 0);
  c.backend.embedding_backward(d_w.embed, ids, rows, first_row(c, d_w.embed));
}

}  // namespace copus
