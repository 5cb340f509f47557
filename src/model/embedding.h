// The first stage's beginning: token rows, learned positions, dropout.
#pragma once
#include "model/block.h"

namespace copus {

void embedding_forward(const BlockContext& c, const StageWeights& w, TensorView x,
                       const TensorView& ids);
// d_x is consumed.
void embedding_backward(const BlockContext& c, const StageWeights& d_w, TensorView d_x,
                        const TensorView& ids);

}  // namespace copus
