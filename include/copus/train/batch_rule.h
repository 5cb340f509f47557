// What a batch other than the reference batch does to the optimizer, whoever changed it.
#pragma once
#include <cstdint>

#include "copus/core/config.h"

namespace copus {

// What the optimizer uses in one step.
struct StepScalars {
  double lr = 0.0, beta1 = 0.0, beta2 = 0.0, weight_decay = 0.0;
};

// kappa = batch / reference batch. `lr`: the schedule's.
//   lr            sqrt: x sqrt(kappa) (Adam; Malladi et al. 2022), linear: x kappa
//   beta2         half_life: ^ kappa, so that its half-life stays the same in tokens
//   weight_decay  timescale: x kappa lr / (lr as used), so that lr x decay per token, AdamW's
//                 timescale (Wang & Aitchison 2024), stays the same
// All are functions of kappa alone: a batch that goes and comes back leaves no trace.
StepScalars scalars_for_batch(const BatchRuleConfig& rule, const OptimizerConfig& optimizer,
                              double lr, double kappa);

}  // namespace copus
