#include "train/run_machine.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "copus/comm/host_names.h"
#include "copus/train/rank_peak.h"
#include "train/measure_hardware.h"
#include "train/memory_room.h"

namespace copus {

double RunMachine::peak_of(const Layout& layout) const {
  return std::accumulate(peak_flops.begin(), peak_flops.begin() + layout.world(), 0.0);
}

RunMachine run_machine(Communicator& world, const RankDevice& device, Backend& backend,
                       Precision precision) {
  RunMachine machine{device, backend, join_devices(world, device, backend), {}};
  machine.peak_flops.assign(static_cast<std::size_t>(world.size()), 0.0);
  machine.peak_flops[static_cast<std::size_t>(world.rank())] =
      rank_peak_flops(device, backend, precision);
  // world: what each rank's device reaches.
  world.all_reduce(std::span<double>(machine.peak_flops), ReduceOp::sum);
  return machine;
}

namespace {

// What is planned for must also start: every rank's device, less what it needs beyond the plan.
void bound_by_free_memory(Hardware& hardware, const RunMachine& machine, Communicator& world) {
  std::int64_t const room =
      machine.backend.free_bytes() / machine.device.sharing - kDeviceReserveBytes;
  double most = -static_cast<double>(std::max<std::int64_t>(0, room));
  world.all_reduce(std::span<double>(&most, 1), ReduceOp::max);  // world: the fullest device
  hardware.memory_bytes =
      std::min(hardware.memory_bytes, static_cast<std::int64_t>(-most) + hardware.reserved_bytes);
}

}  // namespace

Cluster planning_cluster(const Config& config, const std::optional<Hardware>& named,
                         const RunMachine& machine, Communicator& world) {
  auto const hosts = static_cast<int>(host_names(world).size());
  Hardware const hardware =
      named ? *named
            : measure_hardware(machine.backend, *machine.ranks,
                               machine.peak_flops[static_cast<std::size_t>(world.rank())],
                               config.train.precision, hosts,
                               rank_memory_bytes(machine.device, machine.backend));
  Cluster cluster = cluster_of(config.cluster, hardware);
  if (machine.device.on_gpu) bound_by_free_memory(cluster.hardware, machine, world);
  cluster.nodes = hosts;
  cluster.gpus_per_node = (world.size() + hosts - 1) / hosts;
  return cluster;
}

}  // namespace copus
