// What a model says comes next: the logits of one position.
#include <algorithm>

#include "copus/core/error.h"
#include "copus/model/stage.h"
#include "model/block.h"
#include "model/head.h"

namespace copus {

void Stage::logits(std::int64_t row, std::span<float> out) const {
  COPUS_CHECK(setup_.layout.world() == 1, "logits are taken from a stage that is the whole model");
  COPUS_CHECK(static_cast<std::int64_t>(out.size()) == setup_.model.vocab,
              "logits are as many as the vocabulary has ids");
  // evaluate left the normalised rows; the head's other rows need not be multiplied.
  TensorView const x = pick(head_, Head::final_norm).slice(0, row, 1);
  TensorView const y = pick(head_, Head::logits).slice(0, 0, 1);
  linear_forward(backend_, y, x, weights_.head, {});
  std::vector<float> host(static_cast<std::size_t>(y.numel()));
  backend_.download(host.data(), y);
  std::copy_n(host.begin(), out.size(), out.begin());
}

}  // namespace copus
