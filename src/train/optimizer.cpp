#include "copus/train/optimizer.h"

#include <algorithm>
#include <cmath>

namespace copus {

Optimizer::Optimizer(const std::vector<Param>& table, const FlatLayout& layout,
                     const OptimizerConfig& config, Backend& backend)
    : config_(config), backend_(backend) {
  for (const LocalParam& local : layout.params) {
    bool const decays = table[static_cast<std::size_t>(local.param)].decays;
    bool const continues = !ranges_.empty() && ranges_.back().decays == decays &&
                           ranges_.back().offset + ranges_.back().size == local.offset;
    if (continues) {
      ranges_.back().size += local.numel();
    } else {
      ranges_.push_back({local.offset, local.numel(), decays});
    }
    if (local.counted) counted_.push_back({local.offset, local.numel(), decays});
  }
}

double Optimizer::gradient_norm(const TensorView& gradients, std::int64_t tokens) const {
  double sum = 0.0;
  for (const Range& range : counted_)
    sum += backend_.square_sum(gradients.slice(0, range.offset, range.size));
  return std::sqrt(sum) / static_cast<double>(tokens);
}

void Optimizer::update(TrainState& state, const TensorView& gradients, std::int64_t tokens,
                       double norm, double lr) const {
  Counters& counters = state.counters;
  counters.updates += 1;
  counters.beta1_product *= config_.beta1;
  counters.beta2_product *= config_.beta2;
  double const clip = config_.clip > 0.0 ? std::min(1.0, config_.clip / (norm + 1e-6)) : 1.0;
  float const scale = static_cast<float>(clip / static_cast<double>(tokens));
  math::AdamScalars scalars{};
  scalars.lr = static_cast<float>(lr);
  scalars.beta1 = static_cast<float>(config_.beta1);
  scalars.beta2 = static_cast<float>(config_.beta2);
  scalars.eps = static_cast<float>(config_.eps);
  scalars.correction1 = static_cast<float>(1.0 - counters.beta1_product);
  scalars.correction2 = static_cast<float>(1.0 - counters.beta2_product);
  for (const Range& range : ranges_) {
    scalars.weight_decay = range.decays ? static_cast<float>(config_.weight_decay) : 0.0f;
    auto const part = [&](const TensorView& flat) {
      return flat.slice(0, range.offset, range.size);
    };
    backend_.adamw(part(state.master), part(state.m), part(state.v), part(gradients), scale,
                   scalars);
  }
}

}  // namespace copus
