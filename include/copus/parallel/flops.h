// Floating-point operations of a training step, as MFU counts them.
#pragma once
#include "copus/core/config.h"

namespace copus {

// Forward and backward, a token: 6 N_matmul + 12 L h s (Chowdhery et al. 2022, appendix B). Causal
// attention is counted in full, recomputation not at all; the embedding lookup, norms and biases
// are no matrix products.
double flops_per_token(const ModelConfig& model);

}  // namespace copus
