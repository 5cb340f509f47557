// Hidden: build/tests/test_plan "[.timing]" prints what docs/planner.md says.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>

#include "copus/core/config_io.h"
#include "copus/plan/planner.h"

namespace copus {
namespace {

double milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

Config large_cluster() {
  Config config;
  config.model = model_preset("qwen2.5-32b");
  config.model.seq_len = 4096;
  config.batch = {.sequences = 1024, .micro = {}, .min = 256, .max = 4096, .schedule = {}};
  config.parallel.zero.reset();
  config.train.precision = Precision::bf16;
  config.cluster.nodes = 128;
  config.cluster.gpus_per_node = 8;
  return config;
}

}  // namespace

TEST_CASE("a decision over every candidate of 1,024 ranks finds a row of the table", "[.timing]") {
  Config const config = large_cluster();
  Cluster const cluster = cluster_of(config.cluster, hardware_preset("h100-sxm"));
  auto start = std::chrono::steady_clock::now();
  std::vector<Candidate> const candidates = candidates_of(config, cluster, 1024);
  double const build = milliseconds_since(start);
  PlanTable const table = table_of(candidates);
  auto const row = std::find_if(table.begin(), table.end(),
                                [](const PlanRow& r) { return r.configuration.batch == 1024; });
  REQUIRE(row != table.end());
  LiveCosts live;
  for (int i = 0; i < 50; ++i) {
    observe(live, row->configuration.shape, row->predicted, row->micro_batches(),
            row->predicted.seconds(row->micro_batches()));
  }
  Situation now;
  now.present = row->configuration;
  now.noise = {1000, 800, 1250, true};
  now.step = 1000;
  now.horizon_tokens = 1e10;
  now.switch_seconds = 2.0;
  now.sequence_tokens = 4096;
  std::vector<double> times;
  Decision decision;
  for (int i = 0; i < 21; ++i) {
    PlannerState state;
    start = std::chrono::steady_clock::now();
    decision = decide(table, live, {}, now, state);
    times.push_back(milliseconds_since(start));
  }
  std::sort(times.begin(), times.end());
  fmt::print(
      "{} candidates priced in {:.0f} ms, {} fit; a decision takes {:.2f} ms (median of 21)\n",
      candidates.size(), build, table.size(), times[10]);
  CHECK(table.size() > 20000);
  CHECK(decision.runner_up.has_value());
}

}  // namespace copus
