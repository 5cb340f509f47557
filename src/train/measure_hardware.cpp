#include "train/measure_hardware.h"

#include <algorithm>
#include <array>
#include <vector>

#include "copus/backend/machine.h"
#include "train/stopwatch.h"

namespace copus {
namespace {

// Seconds of one all-reduce of that many f32, the best of a few.
double all_reduce_seconds(Communicator& world, std::int64_t elements) {
  std::vector<float> values(static_cast<std::size_t>(elements), 1.0f);
  double best = 1e30;
  for (int i = 0; i < 5; ++i) {
    double seconds = 0.0;
    world.barrier();
    {
      Stopwatch const watch(seconds);
      world.all_reduce({values.data(), DType::f32, {elements}}, ReduceOp::sum);
    }
    best = std::min(best, seconds);
  }
  return best;
}

// A ring of n ranks takes 2 (n - 1) steps of one message each.
Link link_of(Communicator& world) {
  if (world.size() == 1) return {};
  constexpr std::int64_t kSmall = 256, kLarge = 1 << 20;
  double const n = world.size(), small = all_reduce_seconds(world, kSmall);
  double const large = all_reduce_seconds(world, kLarge);
  double const bytes = 2.0 * (n - 1.0) / n * static_cast<double>(kLarge * size_of(DType::f32));
  return {small / (2.0 * (n - 1.0)), bytes / std::max(1e-9, large - small)};
}

}  // namespace

Hardware measure_hardware(Backend& backend, Communicator& world, double peak_flops,
                          Precision precision, int hosts) {
  double const n = world.size();
  Link const link = link_of(world);
  bool const half = precision == Precision::bf16;
  std::array<double, 5> sums{half ? measured_peak_flops(backend) : peak_flops,
                             measured_bandwidth(backend), link.latency_seconds,
                             link.bytes_per_second, half ? peak_flops : 0.0};
  // world: the mean rank.
  world.all_reduce(std::span<double>(sums), ReduceOp::sum);
  Hardware hardware;
  hardware.name = "measured";
  hardware.source = backend.name() + ", measured at the start of the run";
  hardware.fp32 = {sums[0] / n, 1.0};
  hardware.bf16 = {sums[4] / n, 1.0};
  hardware.memory_bytes_per_second = sums[1] / n;
  Link const mean{sums[2] / n, sums[3] / n};
  // Over several hosts the slowest link sets the pace of what was measured.
  hardware.between = mean;
  hardware.inside = hosts > 1 ? Link{0.0, hardware.memory_bytes_per_second / 2.0} : mean;
  if (world.size() == 1) hardware.inside.bytes_per_second = hardware.memory_bytes_per_second / 2.0;
  hardware.memory_bytes = available_memory_bytes() * hosts / world.size();
  return hardware;
}

}  // namespace copus
