#include "copus/train/rank_peak.h"

#include <fmt/format.h>

#include "copus/backend/machine.h"
#include "copus/parallel/activations.h"
#include "copus/plan/hardware.h"

namespace copus {

std::optional<double> listed_peak_flops(const RankDevice& device, Precision precision) {
  if (!device.on_gpu) return {};
  auto const hardware = hardware_of_gpu(device.facts.name, device.facts.memory_bytes);
  if (!hardware) return {};
  // Ranks that take turns on a GPU have its peak together.
  return hardware->matrix(precision).peak_flops / device.sharing;
}

double rank_peak_flops(const RankDevice& device, Backend& backend, Precision precision) {
  if (auto const listed = listed_peak_flops(device, precision)) return *listed;
  return measured_peak_flops(backend, compute_type(precision));
}

std::string slow_bf16_words(const RankDevice& device, Backend& backend, const Config& config,
                            double bf16_flops) {
  constexpr double kClearly = 0.8;
  if (device.on_gpu || config.train.precision != Precision::bf16 || config.train.emulate_bf16)
    return "";
  double const fp32_flops = measured_peak_flops(backend);
  if (bf16_flops > kClearly * fp32_flops) return "";
  return fmt::format(
      "train.precision: this CPU's bf16 products reach {:.0f} GFLOP/s and its fp32 ones {:.0f}; "
      "train.emulate_bf16 true is faster here",
      bf16_flops / 1e9, fp32_flops / 1e9);
}

std::int64_t rank_memory_bytes(const RankDevice& device, Backend& backend) {
  return (device.on_gpu ? device.facts.memory_bytes : backend.free_bytes()) / device.sharing;
}

}  // namespace copus
