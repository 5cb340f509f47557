// copus bench comm: what the transport between these ranks reaches.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/bench.h"
#include "cli/number_checks.h"
#include "copus/backend/machine.h"
#include "copus/comm/comm_bench.h"
#include "copus/core/error.h"

namespace copus {
namespace {

struct CommFlags {
  RankFlags rank;
  int repeats = 7;
  std::string out;
};

nlohmann::json as_json(const std::vector<CommRate>& rates) {
  nlohmann::json list = nlohmann::json::array();
  for (const CommRate& rate : rates) {
    list.push_back({{"operation", name_of(rate.operation)},
                    {"bytes", rate.bytes},
                    {"seconds", rate.seconds},
                    {"algorithm_bandwidth", rate.algorithm_bandwidth()},
                    {"bus_bandwidth", rate.bus_bandwidth()}});
  }
  return list;
}

void print_table(const std::vector<CommRate>& rates) {
  fmt::print("{:<16}{:>12}{:>14}{:>16}{:>16}\n", "operation", "bytes", "us", "algorithm GB/s",
             "bus GB/s");
  for (const CommRate& rate : rates) {
    fmt::print("{:<16}{:>12}{:>14.1f}{:>16.2f}{:>16.2f}\n", name_of(rate.operation), rate.bytes,
               1e6 * rate.seconds, rate.algorithm_bandwidth() / 1e9, rate.bus_bandwidth() / 1e9);
  }
}

// By the smallest and the largest all-reduce.
Link link_of(const std::vector<CommRate>& rates) {
  const CommRate *small = nullptr, *large = nullptr;
  for (const CommRate& rate : rates) {
    if (rate.operation != CommOperation::all_reduce) continue;
    if (small == nullptr) small = &rate;
    large = &rate;
  }
  return link_of_ring(large->ranks, small->seconds, static_cast<double>(large->bytes),
                      large->seconds);
}

void profile(const std::string& out, const BenchRank& rank, const std::vector<CommRate>& rates) {
  rank.world.barrier();  // world: all measure at the same time
  double const peak = measured_peak_flops(rank.backend);
  write_profile(out, "comm", rank, peak, Precision::fp32, link_of(rates));
}

void run_comm(const CommFlags& flags) {
  check_out(flags.out);
  on_ranks(flags.rank, [&](const BenchRank& rank) {
    if (rank.world.size() == 1) {
      throw ConfigError(
          "bench comm: one rank has nobody to send to; take --ranks 2 or more, or mpirun -n 2");
    }
    std::vector<CommRate> const rates = bench_comm(rank.world, rank.backend, flags.repeats);
    if (!flags.out.empty()) profile(flags.out, rank, rates);
    if (!rank.leads()) return;
    if (flags.rank.json) {
      fmt::print("{}\n", nlohmann::json{{"transport", rank.world.transport()},
                                        {"ranks", rank.world.size()},
                                        {"repeats", flags.repeats},
                                        {"operations", as_json(rates)}}
                             .dump(2));
    } else {
      fmt::print("{} ranks over {}, medians of {}\n", rank.world.size(), rank.world.transport(),
                 flags.repeats);
      print_table(rates);
    }
  });
}

}  // namespace

void add_bench_comm(CLI::App& bench) {
  auto flags = std::make_shared<CommFlags>();
  flags->rank.ranks_alone = 2;
  CLI::App* command = bench.add_subcommand(
      "comm", "Collectives and messages between ranks at 4 KiB to 64 MiB, results checked");
  add_rank_options(*command, flags->rank);
  command->add_option("--repeats", flags->repeats, "Rounds of each to take the median of")
      ->capture_default_str()
      ->check(whole_from(1));
  add_out_option(*command, flags->out);
  command->footer(
      "Example:\n  copus bench comm --ranks 4\n"
      "  mpirun -n 4 --bind-to none copus bench comm");
  command->callback([flags] { run_comm(*flags); });
}

}  // namespace copus
