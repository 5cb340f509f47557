// Presets: facts from datasheets and public measurements, and a few constants fitted to public
// measurements of whole steps (docs/planner.md says which, and how well they do).
#include "copus/plan/hardware.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "copus/core/config_io.h"
#include "copus/core/error.h"

namespace copus {
namespace {

constexpr double kTera = 1e12, kGiga = 1e9, kMicro = 1e-6, kMilli = 1e-3;
constexpr std::int64_t kGib = std::int64_t{1} << 30;
// CUDA or HIP context, matrix and collective libraries: 1.5 to 3 GB in practice.
constexpr std::int64_t kRuntimeBytes = 2 * kGib;

// Facts: peaks and memory size from NVIDIA's A100 datasheet; streaming rate as copied on Azure
// ND A100 v4; product efficiency and half size from 191 measured products; ring bandwidth from
// nccl-tests on one such node (it reaches 230 GB/s at gigabytes, 170 at the megabytes of a layer).
// Fitted: layer_seconds, overlaps (Megatron-LM, InternLM and AA-Scaling runs of up to 1,024 GPUs).
Hardware a100(const std::string& name, std::int64_t gib, double memory_rate) {
  Hardware hw;
  hw.name = name;
  hw.source =
      "NVIDIA A100 datasheet; Azure ND A100 v4 benchmarks; fitted to public runs on A100 clusters";
  hw.fp32 = {19.5 * kTera, 0.9};
  hw.bf16 = {312 * kTera, 0.795};
  hw.half_size = 128;
  hw.attention_forward = 0.55;
  hw.attention_backward = 0.40;
  hw.cudnn = true;
  hw.memory_bytes_per_second = memory_rate;
  hw.memory_bytes = gib * kGib;
  hw.reserved_bytes = kRuntimeBytes;
  hw.inside = {3 * kMicro, 200 * kGiga};
  hw.between = {5 * kMicro, 0.0};
  hw.between_efficiency = 0.9;
  hw.launch_seconds = 6 * kMicro;
  hw.layer_seconds = 0.89 * kMilli;
  hw.overlap = 0.6;
  hw.overlap_zero = 0.25;
  return hw;
}

// Facts: NVIDIA's H100 and H200 datasheets; streaming rates as copied on Azure ND H100 v5 and
// ND H200 v5; ring bandwidth from nccl-tests without NVLS. Fitted: product efficiency (a power cap
// keeps long runs far below the 0.80 of a single product), layer_seconds, overlaps and the latency
// between nodes (nanotron runs of up to 256 GPUs over EFA).
Hardware hopper(const std::string& name, std::int64_t gib, double memory_rate) {
  Hardware hw;
  hw.name = name;
  hw.source =
      "NVIDIA H100/H200 datasheets; Azure ND v5 benchmarks; fitted to public runs on an H100 "
      "cluster";
  hw.fp32 = {67 * kTera, 0.9};
  hw.bf16 = {989 * kTera, 0.47};
  hw.half_size = 128;
  hw.attention_forward = 0.45;
  hw.attention_backward = 0.35;
  hw.cudnn = true;
  hw.memory_bytes_per_second = memory_rate;
  hw.memory_bytes = gib * kGib;
  hw.reserved_bytes = kRuntimeBytes;
  hw.inside = {3 * kMicro, 350 * kGiga};
  hw.between = {100 * kMicro, 0.0};
  hw.between_efficiency = 0.8;
  hw.launch_seconds = 6 * kMicro;
  hw.layer_seconds = 1.45 * kMilli;
  hw.overlap = 0.8;
  hw.overlap_zero = 0.0;
  return hw;
}

// Facts: NVIDIA's B200 datasheet; product efficiency from 514 measured products. Fitted to
// single-node runs. Between nodes: as on H100, no run of several nodes was at hand.
Hardware b200() {
  Hardware hw = hopper("b200-sxm", 180, 6.5 * kTera);
  hw.source = "NVIDIA B200 datasheet; fitted to public runs on one B200 node";
  hw.fp32 = {80 * kTera, 0.9};
  hw.bf16 = {2250 * kTera, 0.475};
  hw.half_size = 64;
  hw.inside = {3 * kMicro, 280 * kGiga};
  hw.layer_seconds = 0.45 * kMilli;
  hw.overlap_zero = 0.3;
  return hw;
}

// Facts: AMD's MI210 datasheet, from memory and not verified. No run was at hand: efficiencies are
// those of MI300X products (0.51) and of streaming (0.8), the rest is as on A100.
Hardware mi210() {
  Hardware hw = a100("mi210", 64, 0.8 * 1.6 * kTera);
  hw.source = "AMD MI210 datasheet, not verified; no measurement of a run";
  hw.fp32 = {45.3 * kTera, 0.51};
  hw.bf16 = {181 * kTera, 0.51};
  hw.cudnn = false;
  hw.inside = {6 * kMicro, 40 * kGiga};
  return hw;
}

std::vector<Hardware> presets() {
  return {hopper("h100-sxm", 80, 2.9 * kTera), hopper("h200-sxm", 140, 4.01 * kTera), b200(),
          a100("a100-sxm-80gb", 80, 1.61 * kTera),
          // 1.555 TB/s listed, of which the larger one's memory reaches 0.8.
          a100("a100-sxm-40gb", 40, 0.8 * 1.555 * kTera), mi210()};
}

}  // namespace

std::vector<std::string> hardware_preset_names() {
  std::vector<std::string> names;
  for (const Hardware& hw : presets()) names.push_back(hw.name);
  return names;
}

std::optional<Hardware> hardware_of_gpu(const std::string& name, std::int64_t memory_bytes) {
  auto const says = [&](const char* word) { return name.find(word) != std::string::npos; };
  // Cards for PCIe, pairs of them (NVL) and Grace's have other peaks or other memory.
  if (says("PCI") || says("NVL") || says("GH200") || says("GB200")) return {};
  if (says(" H100") && says("HBM3")) return hardware_preset("h100-sxm");
  if (says(" H200")) return hardware_preset("h200-sxm");
  if (says(" B200")) return hardware_preset("b200-sxm");
  if (says(" A100-SXM4"))
    return hardware_preset(memory_bytes > 60 * kGib ? "a100-sxm-80gb" : "a100-sxm-40gb");
  return {};
}

Link link_of_ring(int ranks, double small_seconds, double bytes, double large_seconds) {
  double const n = ranks, sent = 2.0 * (n - 1.0) / n * bytes;
  double const moving = std::max(large_seconds - small_seconds, 0.5 * large_seconds);
  return {small_seconds / (2.0 * (n - 1.0)), sent / moving};
}

Hardware hardware_preset(const std::string& name) {
  for (Hardware& hw : presets()) {
    if (hw.name == name) return hw;
  }
  std::vector<std::string> const names = hardware_preset_names();
  std::string const near = nearest_name(name, names);
  throw ConfigError(fmt::format("hardware preset \"{}\" is unknown; {}known: {}", name,
                                near.empty() ? "" : "did you mean " + near + "? ",
                                fmt::join(names, ", ")));
}

}  // namespace copus
