// How far a run in bf16 may be from one in fp32, or from another in bf16.
#pragma once
#include <cmath>
#include <string>

#include "support/layout_run.h"

namespace copus::test {

// On its way to a logit a value is rounded to 8 bits about twelve times a layer (weights, the
// branches' tensors, the residual stream) and four times around the layers. A rounding errs by u =
// 2^-8 of the value at most; independent ones add up to u sqrt(R).
inline double rounding(const ModelConfig& model) {
  return std::ldexp(std::sqrt(12.0 * static_cast<double>(model.layers) + 4.0), -8);
}
// Logits here are of size 1, and a row's loss moves by at most 2 for 1 of a logit (|softmax - 1| +
// the other columns' softmax).
inline double loss_bound(const ModelConfig& model) {
  return 2.0 * rounding(model);
}
// A gradient goes through as many roundings again on its way back.
inline double norm_bound(const ModelConfig& model) {
  return std::sqrt(2.0) * rounding(model);
}

// "" or where the two part by more than `factor` bounds.
inline std::string bf16_deviation(const ModelConfig& model, const StepNumbers& a,
                                  const StepNumbers& b, double factor) {
  for (std::size_t s = 0; s < a.losses.size(); ++s) {
    if (!(std::abs(a.losses[s] - b.losses[s]) <= factor * loss_bound(model)))
      return fmt::format("loss of step {}: {} and {}", s + 1, a.losses[s], b.losses[s]);
    if (!(std::abs(a.norms[s] - b.norms[s]) <= factor * norm_bound(model) * b.norms[s]))
      return fmt::format("norm of step {}: {} and {}", s + 1, a.norms[s], b.norms[s]);
  }
  if (!(std::abs(a.after - b.after) <= factor * loss_bound(model)))
    return fmt::format("loss afterwards: {} and {}", a.after, b.after);
  return "";
}

}  // namespace copus::test
