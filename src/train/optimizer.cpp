#include "copus/train/optimizer.h"

#include <algorithm>
#include <cmath>

namespace copus {

Optimizer::Optimizer(const std::vector<Param>& table, const FlatLayout& flat,
                     const std::vector<Owned>& owned, const OptimizerConfig& config,
                     Backend& backend)
    : config_(config), backend_(backend) {
  for (const Owned& stretch : owned) {
    for (const LocalParam& local : flat.params) {
      std::int64_t const begin = std::max(local.offset, stretch.flat);
      std::int64_t const end = std::min(local.offset + local.numel(), stretch.flat + stretch.size);
      if (begin >= end) continue;
      Range const range{begin, stretch.state + begin - stretch.flat, end - begin,
                        table[static_cast<std::size_t>(local.param)].decays};
      bool const continues = !ranges_.empty() && ranges_.back().decays == range.decays &&
                             ranges_.back().flat + ranges_.back().size == range.flat &&
                             ranges_.back().state + ranges_.back().size == range.state;
      if (continues) {
        ranges_.back().size += range.size;
      } else {
        ranges_.push_back(range);
      }
      if (!local.counted) continue;
      if (!counted_.empty() && counted_.back().flat + counted_.back().size == begin) {
        counted_.back().size += range.size;
      } else {
        counted_.push_back({begin, range.size});
      }
    }
  }
}

double Optimizer::square_sum(const TensorView& gradients) const {
  double sum = 0.0;
  for (const Stretch& stretch : counted_)
    sum += backend_.square_sum(gradients.slice(0, stretch.flat, stretch.size));
  return sum;
}

void Optimizer::update(const TrainState& state, const TensorView& gradients,
                       const TensorView& weights, std::int64_t tokens, double norm,
                       const StepScalars& step) const {
  double const clip = config_.clip > 0.0 ? std::min(1.0, config_.clip / (norm + 1e-6)) : 1.0;
  float const scale = static_cast<float>(clip / static_cast<double>(tokens));
  math::AdamScalars scalars{};
  scalars.lr = static_cast<float>(step.lr);
  scalars.beta1 = static_cast<float>(step.beta1);
  scalars.beta2 = static_cast<float>(step.beta2);
  scalars.eps = static_cast<float>(config_.eps);
  scalars.correction1 = static_cast<float>(1.0 - state.counters.beta1_product);
  scalars.correction2 = static_cast<float>(1.0 - state.counters.beta2_product);
  for (const Range& range : ranges_) {
    scalars.weight_decay = range.decays ? static_cast<float>(step.weight_decay) : 0.0f;
    auto const part = [&](const TensorView& buffer) {
      return buffer.slice(0, range.state, range.size);
    };
    backend_.adamw(part(state.master), part(state.m), part(state.v),
                   gradients.slice(0, range.flat, range.size), scale, scalars,
                   weights ? weights.slice(0, range.flat, range.size) : TensorView{});
  }
}

}  // namespace copus
