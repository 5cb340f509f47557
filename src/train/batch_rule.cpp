#include "copus/train/batch_rule.h"

#include <cmath>

namespace copus {
namespace {

double lr_factor(LrRule rule, double kappa) {
  switch (rule) {
    case LrRule::none:
      return 1.0;
    case LrRule::sqrt:
      return std::sqrt(kappa);
    case LrRule::linear:
      return kappa;
  }
  return 1.0;
}

}  // namespace

StepScalars scalars_for_batch(const BatchRuleConfig& rule, const OptimizerConfig& optimizer,
                              double lr, double kappa) {
  double const factor = lr_factor(rule.lr, kappa);
  StepScalars scalars{lr * factor, optimizer.beta1, optimizer.beta2, optimizer.weight_decay};
  if (rule.beta == BetaRule::half_life) scalars.beta2 = std::pow(optimizer.beta2, kappa);
  if (rule.weight_decay == DecayRule::timescale) scalars.weight_decay *= kappa / factor;
  return scalars;
}

}  // namespace copus
