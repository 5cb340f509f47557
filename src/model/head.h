// The last stage's end: final norm, logits, loss, and their gradients, a piece of rows at a time.
#pragma once
#include "model/block.h"

namespace copus {

// The sum of losses over unmasked targets, from head[x_final]. `losses` is host room for (N).
double head_loss(const BlockContext& c, const StageWeights& w, const std::vector<TensorView>& head,
                 const TensorView& targets, std::vector<float>& losses);
// The same; also leaves the gradient of that sum with respect to x_final in d_x (overwritten) and
// adds the weights' to d_w.
double head_loss_and_backward(const BlockContext& c, const StageWeights& w, const StageWeights& d_w,
                              const std::vector<TensorView>& head, const TensorView& targets,
                              TensorView d_x, std::vector<float>& losses);

}  // namespace copus
