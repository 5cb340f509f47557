// The hardware profile that copus bench leaves for the planner (docs/planner.md has its keys).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>

#include "backend/op_bench.h"
#include "cli/bench.h"
#include "copus/comm/host_names.h"
#include "copus/core/error.h"
#include "copus/train/rank_peak.h"
#include "train/measure_hardware.h"

namespace copus {
namespace {

// Attention's shares of the matrix peak: forward, backward; the mean rank's, all measuring at once.
std::array<double, 2> attention_shares(const BenchRank& rank, double peak_flops) {
  constexpr int kRepeats = 3;
  rank.world.barrier();
  std::array<double, 2> shares{};
  for (const OpRate& rate : bench_attention(rank.backend, kRepeats)) {
    if (rate.name == "attention") shares[0] = rate.rate() / peak_flops;
    if (rate.name == "attention_backward") shares[1] = rate.rate() / peak_flops;
  }
  rank.world.all_reduce(std::span<double>(shares), ReduceOp::sum);
  for (double& share : shares) share = std::min(1.0, share / rank.world.size());
  return shares;
}

}  // namespace

void add_out_option(CLI::App& command, std::string& out) {
  command.add_option("--out", out,
                     "Also write a hardware profile of one of these ranks, for cluster.hardware");
}

void check_out(const std::string& out) {
  if (out.empty()) return;
  std::filesystem::path const folder = std::filesystem::path(out).parent_path();
  if (std::filesystem::is_directory(out) ||
      !(folder.empty() || std::filesystem::is_directory(folder))) {
    throw ConfigError(fmt::format("--out {}: it takes a file in a folder that exists", out));
  }
}

void write_profile(const std::string& out, const std::string& by, const BenchRank& rank,
                   double peak_flops, Precision precision, const std::optional<Link>& link) {
  auto const hosts = static_cast<int>(host_names(rank.world).size());
  Hardware hardware = measure_hardware(rank.backend, rank.world, peak_flops, precision, hosts,
                                       rank_memory_bytes(rank.device, rank.backend));
  std::array<double, 2> const shares = attention_shares(rank, peak_flops);
  hardware.attention_forward = shares[0];
  hardware.attention_backward = shares[1];
  // What crosses hosts was measured where there are several.
  if (link) (hosts > 1 ? hardware.between : hardware.inside) = *link;
  hardware.source =
      fmt::format("{}, measured by copus bench {} on {} ranks of {} threads over {}",
                  rank.backend.name(), by, rank.world.size(), rank.threads, rank.world.transport());
  if (!rank.leads()) return;
  std::ofstream file(out, std::ios::trunc);
  file << hardware_json(hardware) << '\n';
  file.close();
  if (!file) throw IoError(fmt::format("cannot write {}", out));
}

}  // namespace copus
