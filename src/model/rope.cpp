#include "copus/model/rope.h"

#include <cmath>
#include <numbers>

namespace copus {
namespace {

double scaled(double frequency, const RopeScaling& s) {
  if (s.kind == RopeKind::linear) return frequency / s.factor;
  double const wavelength = 2.0 * std::numbers::pi / frequency;
  double const original = static_cast<double>(s.original_max_positions);
  if (wavelength < original / s.high_freq_factor) return frequency;
  if (wavelength > original / s.low_freq_factor) return frequency / s.factor;
  double const keep =
      (original / wavelength - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
  return (1.0 - keep) * frequency / s.factor + keep * frequency;
}

}  // namespace

std::vector<float> rope_table(const ModelConfig& model, std::int64_t positions) {
  std::int64_t const half = model.head_dim() / 2;
  std::vector<float> table(static_cast<std::size_t>(positions * half * 2));
  for (std::int64_t i = 0; i < half; ++i) {
    double frequency =
        std::pow(model.rope_theta, -static_cast<double>(i) / static_cast<double>(half));
    if (model.rope_scaling) frequency = scaled(frequency, *model.rope_scaling);
    for (std::int64_t t = 0; t < positions; ++t) {
      double const angle = static_cast<double>(t) * frequency;
      auto const at = static_cast<std::size_t>((t * half + i) * 2);
      table[at] = static_cast<float>(std::cos(angle));
      table[at + 1] = static_cast<float>(std::sin(angle));
    }
  }
  return table;
}

}  // namespace copus
