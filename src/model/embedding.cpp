#include "model/embedding.h"

namespace copus {
namespace {

TensorView by_sample(const BlockContext& c, const TensorView& x) {
  return x.reshape({c.micro, c.model.seq_len, c.model.hidden});
}
Dropout dropout_of(const BlockContext& c) {
  return c.dropout_at(-1, BlockContext::Place::embedding, c.model.seq_len * c.model.hidden);
}

}  // namespace

void embedding_forward(const BlockContext& c, const StageWeights& w, TensorView x,
                       const TensorView& ids) {
  c.backend.embedding(x, ids, w.embed, 0);
  if (w.positions) c.backend.add_positions(by_sample(c, x), w.positions, 0);
  if (c.dropout > 0.0f) c.backend.dropout(x, dropout_of(c));
}

void embedding_backward(const BlockContext& c, const StageWeights& d_w, TensorView d_x,
                        const TensorView& ids) {
  if (c.dropout > 0.0f) c.backend.dropout(d_x, dropout_of(c));
  if (d_w.positions) c.backend.positions_backward(d_w.positions, by_sample(c, d_x), 0);
  c.backend.embedding_backward(d_w.embed, ids, d_x, 0);
}

}  // namespace copus
