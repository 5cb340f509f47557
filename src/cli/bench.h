// The measurements of `copus bench`, one file each, and the flags they share.
#pragma once
#include <CLI/CLI.hpp>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "copus/backend/backend.h"
#include "copus/comm/communicator.h"
#include "copus/comm/rank_device.h"
#include "copus/core/config.h"
#include "copus/parallel/layout.h"
#include "copus/plan/hardware.h"

namespace copus {

void add_bench_ops(CLI::App& bench);
void add_bench_comm(CLI::App& bench);
void add_bench_step(CLI::App& bench);
void add_bench_switch(CLI::App& bench);

// Which ranks measure, and how they say it.
struct RankFlags {
  std::optional<int> ranks;
  int ranks_alone = 1;  // without a launcher and without --ranks
  int threads = 0;
  DeviceChoice device = DeviceChoice::automatic;
  TransportChoice transport = TransportChoice::automatic;
  bool emulate_bf16 = false;
  bool json = false;
};
void add_rank_options(CLI::App& command, RankFlags& flags);

struct BenchRank {
  Communicator& world;  // for tensors in the backend's memory
  Backend& backend;
  const RankDevice& device;
  int threads = 1;  // of this rank's backend
  bool leads() const { return world.rank() == 0; }
};
// Runs `body` on every rank, with the device that the flags ask for. A mistake that all ranks find
// (ConfigError) is told by rank 0 alone.
void on_ranks(const RankFlags& flags, const std::function<void(const BenchRank&)>& body);

// The model and the batch of a step.
struct ModelFlags {
  std::string model = "gpt2-124m";
  std::int64_t batch = 4, seq_len = 256, micro = 0;  // micro 0: chosen
};
void add_model_options(CLI::App& command, ModelFlags& flags);
// What is wrong with the flags is added to `problems`.
Config config_of(const ModelFlags& flags, std::vector<std::string>& problems);

nlohmann::json as_json(const Layout& layout);

// --out FILE: the hardware profile that a measurement leaves for the planner.
void add_out_option(CLI::App& command, std::string& out);
// A ConfigError where that file cannot come to be; for before the measurement.
void check_out(const std::string& out);
// `peak_flops`: of this rank's device in `precision` while the others measured too. `link`: between
// two ranks, as this measurement found it; a short measurement stands in where there is none. What
// else a profile holds is measured here, by all ranks at once, and rank 0 writes. Every rank calls
// it.
void write_profile(const std::string& out, const std::string& by, const BenchRank& rank,
                   double peak_flops, Precision precision, const std::optional<Link>& link);

}  // namespace copus
