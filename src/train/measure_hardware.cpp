#include "train/measure_hardware.h"

#include <algorithm>
#include <array>
#include <vector>

#include "copus/backend/buffer.h"
#include "copus/backend/machine.h"
#include "copus/comm/broadcast.h"
#include "copus/parallel/activations.h"
#include "train/stopwatch.h"

namespace copus {
namespace {

// Seconds of one all-reduce of that many f32, the median of a few: a wait for a rank to be woken is
// what a step pays too.
double all_reduce_seconds(Communicator& world, Backend& backend, std::int64_t elements) {
  Buffer const buffer(backend, elements * size_of(DType::f32));
  TensorView const values(buffer.data(), DType::f32, {elements});
  backend.zero(values);
  backend.synchronize();
  constexpr std::size_t kTimes = 9;
  std::array<double, kTimes> times{};
  for (double& seconds : times) {
    world.barrier();
    {
      Stopwatch const watch(seconds);
      world.all_reduce(values, ReduceOp::sum);
    }
  }
  std::sort(times.begin(), times.end());
  return times[kTimes / 2];
}

Link link_of(Communicator& world, Backend& backend) {
  if (world.size() == 1) return {};
  constexpr std::int64_t kSmall = 256, kLarge = 1 << 20;
  double const small = all_reduce_seconds(world, backend, kSmall);
  double const large = all_reduce_seconds(world, backend, kLarge);
  return link_of_ring(world.size(), small, static_cast<double>(kLarge * size_of(DType::f32)),
                      large);
}

// Rank 0's products while the others wait, over its products while all of them compute.
double alone_factor(Backend& backend, Communicator& world, Precision precision, double together) {
  if (world.size() == 1) return 1.0;
  double factor = 1.0;
  world.barrier();
  if (world.rank() == 0) {
    double const alone = measured_peak_flops(backend, compute_type(precision));
    factor = std::max(1.0, alone / together);
  }
  broadcast_value(world, factor, 0);
  return factor;
}

}  // namespace

Hardware measure_hardware(Backend& backend, Communicator& world, double peak_flops,
                          Precision precision, int hosts, std::int64_t memory_bytes) {
  double const n = world.size();
  Link const link = link_of(world, backend);
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
  hardware.alone = alone_factor(backend, world, precision, peak_flops);
  // Microseconds fit between two turns of the processor: this is the time of a rank alone.
  double launch = measured_launch_seconds(backend) * hardware.alone;
  world.all_reduce(std::span<double>(&launch, 1), ReduceOp::sum);  // world: the mean rank
  hardware.launch_seconds = launch / n;
  hardware.overlap_messages = world.can_start() ? 1.0 : 0.0;  // the transport's, on every rank
  hardware.memory_bytes = memory_bytes;
  hardware.cudnn = backend.attention_library() == AttentionLibrary::cudnn;
  return hardware;
}

}  // namespace copus
