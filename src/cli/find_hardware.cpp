#include "cli/find_hardware.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "backend/op_bench.h"
#include "copus/backend/device.h"
#include "copus/backend/machine.h"
#include "copus/backend/make_backend.h"
#include "copus/core/config_io.h"
#include "copus/core/error.h"

namespace copus {
namespace {

double rate_of(const std::vector<OpRate>& rates, const std::string& name) {
  for (const OpRate& rate : rates) {
    if (rate.name == name) return rate.rate();
  }
  throw InternalError("no operation " + name + " is measured");
}

// Every rank of the machine has its share of what one process reaches on all of it.
Hardware measure(const ClusterConfig& cluster, DeviceChoice device) {
  constexpr int kRepeats = 3;
  auto const backend = make_backend(device, 0);
  // A GPU is a rank's own; a host's processors and memory are shared out.
  std::int64_t const ranks_of_it = backend->on_host() ? cluster.gpus_per_node : 1;
  auto const ranks = static_cast<double>(ranks_of_it);
  double const peak = measured_peak_flops(*backend), bandwidth = measured_bandwidth(*backend);
  std::vector<OpRate> const rates = bench_ops(*backend, kRepeats);
  Hardware hw;
  hw.name = "measured";
  hw.source = fmt::format("{}, measured by this command", backend->name());
  hw.fp32 = {peak / ranks, 1.0};
  hw.attention_forward = std::min(1.0, rate_of(rates, "attention") / peak);
  hw.attention_backward = std::min(1.0, rate_of(rates, "attention_backward") / peak);
  hw.cudnn = backend->attention_library() == AttentionLibrary::cudnn;
  hw.memory_bytes_per_second = bandwidth / ranks;
  hw.memory_bytes = backend->on_host() ? available_memory_bytes() / ranks_of_it
                                       : cuda_facts().gpus.front().memory_bytes;
  // Ranks of one machine move a byte by reading and writing it once.
  hw.inside.bytes_per_second = bandwidth / 2.0 / ranks;
  hw.overlap_messages =
      backend->on_host() ? 1.0 : 0.0;  // over threads and MPI (comm/communicator.h)
  if (ranks_of_it > 1) {
    auto const threads = std::thread::hardware_concurrency() / ranks_of_it;
    auto const rank = make_backend(device, std::max(1, static_cast<int>(threads)));
    hw.alone = std::max(1.0, measured_peak_flops(*rank) / hw.fp32.peak_flops);
    hw.launch_seconds = measured_launch_seconds(*rank) * hw.alone;
  } else {
    hw.launch_seconds = measured_launch_seconds(*backend);
  }
  return hw;
}

}  // namespace

Hardware find_hardware(const ClusterConfig& cluster, DeviceChoice device) {
  const std::string& name = cluster.hardware;
  if (name == "measure") return measure(cluster, device);
  std::vector<std::string> const presets = hardware_preset_names();
  if (std::find(presets.begin(), presets.end(), name) != presets.end()) {
    return hardware_preset(name);
  }
  std::ifstream file(name, std::ios::binary);
  if (!file || std::filesystem::is_directory(name)) {
    std::string const near = nearest_name(name, presets);
    throw ConfigError(fmt::format(
        "cluster.hardware: \"{}\" is neither a preset nor a file that can be read{}; it takes one "
        "of {}, a profile file, or \"measure\"",
        name, near.empty() ? "" : fmt::format(" (did you mean {}?)", near),
        fmt::join(presets, ", ")));
  }
  std::ostringstream text;
  text << file.rdbuf();
  return parse_hardware(text.str(), name);
}

}  // namespace copus
