// copus bench ops: every operation of one rank's device.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "backend/op_bench.h"
#include "cli/bench.h"
#include "cli/device_option.h"
#include "cli/number_checks.h"
#include "copus/backend/machine.h"
#include "copus/comm/rank_device.h"
#include "copus/core/error.h"

namespace copus {
namespace {

struct OpsFlags {
  int threads = 0, repeats = 20;
  DeviceChoice device = DeviceChoice::automatic;
  bool json = false;
  std::string out;
};

void run_ops(const OpsFlags& flags) {
  check_out(flags.out);
  auto const world = make_single_communicator();
  DeviceRequest request;
  request.device = flags.device;
  request.by_flag = true;
  RankDevice const device = choose_device(*world, request, cuda_facts());
  if (!device.problems.empty()) throw ConfigError(device.problems);
  auto const backend = make_backend(device, flags.threads);
  double const peak = measured_peak_flops(*backend), bandwidth = measured_bandwidth(*backend);
  nlohmann::json list = nlohmann::json::array();
  if (!flags.json) {
    fmt::print("{}: {:.0f} GFLOP/s in matrix products, {:.1f} GB/s\n", backend->name(), peak / 1e9,
               bandwidth / 1e9);
    fmt::print("{:<44}{:>10}{:>16}{:>10}\n", "operation", "ms", "rate", "of limit");
  }
  for (const OpRate& op : bench_ops(*backend, flags.repeats)) {
    bool const flops = op.flops > 0.0;
    double const limit = flops ? peak : bandwidth;
    if (flags.json) {
      list.push_back({{"name", op.name},
                      {"seconds", op.seconds},
                      {"rate", op.rate()},
                      {"limit", limit},
                      {"unit", flops ? "FLOP/s" : "B/s"}});
    } else {
      fmt::print("{:<44}{:>10.3f}{:>9.1f} {}{:>8.0f} %\n", op.name, 1e3 * op.seconds,
                 op.rate() / 1e9, flops ? "GFLOP/s" : "GB/s   ", 100.0 * op.rate() / limit);
    }
  }
  if (flags.json) {
    fmt::print("{}\n", nlohmann::json{{"backend", backend->name()},
                                      {"peak_flops", peak},
                                      {"bandwidth", bandwidth},
                                      {"ops", std::move(list)}}
                           .dump(2));
  }
  if (flags.out.empty()) return;
  write_profile(flags.out, "ops", {*world, *backend, device, flags.threads}, peak, Precision::fp32,
                {});
}

}  // namespace

void add_bench_ops(CLI::App& bench) {
  auto flags = std::make_shared<OpsFlags>();
  CLI::App* command = bench.add_subcommand(
      "ops", "Every operation at the sizes of a GPT-2 124M step of 1,024 tokens");
  command->add_option("--threads", flags->threads, "CPU threads; 0: all this process may run on")
      ->capture_default_str()
      ->check(whole_from(0));
  command->add_option("--repeats", flags->repeats, "Runs of each, the fastest counts")
      ->capture_default_str()
      ->check(whole_from(1));
  add_device_option(*command, flags->device);
  command->add_flag("--json", flags->json, "One JSON document on stdout");
  add_out_option(*command, flags->out);
  command->footer("Example:\n  copus bench ops --threads 2");
  command->callback([flags] { run_ops(*flags); });
}

}  // namespace copus
