// The first stage's beginning: token rows, learned positions, dropout.
#pragma once
#include "model/block.h"

namespace copus {

// x (R, C) from ids (N); all_rows (N, C) is scratch.
void embedding_forward(const BlockContext& c, const StageWeights& w, TensorView x,
                       const TensorView& ids, const TensorView& all_rows);
// d_x is consumed.
void embedding_backward(const BlockContext& c, const StageWeights& d_w, TensorView d_x,
                        const TensorView& ids, const TensorView& all_rows);

}  // namespace copus
