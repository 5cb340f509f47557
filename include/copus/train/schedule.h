// The learning rate and the global batch as functions of tokens: a growing batch changes neither.
#pragma once
#include <cstdint>

#include "copus/core/config.h"

namespace copus {

// The learning rate of a step that ends at `tokens` consumed: linear warm-up, then constant, a
// cosine to min_lr_ratio that ends at decay_tokens (0: the end of the run), or constant with a
// linear fall over the last decay_tokens (wsd: warm-up, stable, decay; Hu et al. 2024). The last
// step of a run has exactly the final rate, the first step is above 0.
double learning_rate(const OptimizerConfig& optimizer, const ScheduleConfig& schedule,
                     std::int64_t total_tokens, std::int64_t tokens);

}  // namespace copus
