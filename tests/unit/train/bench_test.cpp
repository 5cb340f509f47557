// The benchmarks of a step and of a switch: that what they report is what was run.
#include <catch2/catch.hpp>
#include <mutex>
#include <nlohmann/json.hpp>

#include "copus/comm/staged.h"
#include "copus/core/error.h"
#include "copus/parallel/params.h"
#include "copus/train/step_bench.h"
#include "copus/train/switch_bench.h"
#include "support/far_backend.h"
#include "train/saved_step.h"

using namespace copus;

namespace {

Config small() {
  Config config;
  ModelConfig& model = config.model;
  model.family = Family::llama;
  model.layers = 2, model.hidden = 64, model.heads = 4, model.kv_heads = 4, model.ffn = 128;
  model.vocab = 101, model.seq_len = 16, model.max_positions = 16;
  config.batch.sequences = 4;
  config.train.tokens = 1 << 20;
  return config;
}

// What rank 0 of `ranks` reports.
template <class Result, class Body>
Result on_ranks(int ranks, const Body& body) {
  Result result;
  run_ranks(ranks, [&](int rank, Communicator& world) {
    auto const backend = make_cpu_backend(1);
    Result mine = body(world, *backend);
    if (rank == 0) result = std::move(mine);
  });
  return result;
}

}  // namespace

TEST_CASE("a step's parts add up to it, and its dp group has sent what an all-reduce must") {
  Config const config = small();
  Layout const layout{.dp = 2};
  auto const bench = on_ranks<StepBench>(2, [&](Communicator& world, Backend& backend) {
    return bench_step(config, world, layout, backend, 3);
  });
  double share = 0.0;
  for (const StepPart& part : bench.parts) share += part.share;
  CHECK(share == Approx(1.0));
  CHECK(bench.parts.back().name == "other");
  CHECK(bench.micro == 2);
  CHECK(bench.tokens_per_second == Approx(4 * 16 / bench.step_seconds));
  CHECK(bench.fastest_seconds <= bench.step_seconds);
  CHECK(bench.step_seconds <= bench.slowest_seconds);
  REQUIRE(bench.groups.size() == 1);
  CHECK(bench.groups[0].name == "dp");
  CHECK(bench.groups[0].ranks == 2);
  // 2 (n-1)/n of the gradient, four bytes an element.
  std::int64_t gradient = 0;
  for (const Bucket& bucket : flat_layout(config.model, layout, 0, 0).buckets)
    gradient += bucket.size;
  CHECK(bench.groups[0].traffic.bus_bytes == 4 * gradient);
}

TEST_CASE("the host's own part of a step is told of one rank on a device beside it") {
  auto const issue = [](int ranks, const Layout& layout, bool far) {
    return on_ranks<StepBench>(ranks, [&](Communicator& world, Backend& backend) {
      test::FarBackend there;
      Backend& device = far ? static_cast<Backend&>(there) : backend;
      auto const staged = stage_through_host(world, device);
      return bench_step(small(), *staged, layout, device, 3);
    });
  };
  StepBench const bench = issue(1, {}, true);
  REQUIRE(bench.issue_seconds.has_value());
  CHECK(*bench.issue_seconds > 0.0);
  CHECK(*bench.issue_seconds < bench.slowest_seconds);
  CHECK_FALSE(issue(1, {}, false).issue_seconds.has_value());
  CHECK_FALSE(issue(2, {.dp = 2}, true).issue_seconds.has_value());
}

TEST_CASE("a step is measured in any layout, with ranks left over, and names its groups") {
  Config const config = small();
  auto const bench = on_ranks<StepBench>(5, [&](Communicator& world, Backend& backend) {
    return bench_step(config, world, {.tp = 2, .pp = 2}, backend, 1);
  });
  std::vector<std::string> groups, parts;
  for (const StepGroup& group : bench.groups) groups.push_back(group.name);
  for (const StepPart& part : bench.parts) parts.push_back(part.name);
  CHECK(groups == std::vector<std::string>{"tp", "pp"});
  CHECK(std::count(parts.begin(), parts.end(), "tp collectives") == 1);
  CHECK(std::count(parts.begin(), parts.end(), "pp collectives") == 1);
}

TEST_CASE(
    "a step is compared with a saved one part by part, and what was measured otherwise is named") {
  nlohmann::json const saved = {
      {"model", "m"},
      {"precision", "fp32"},
      {"batch", 4},
      {"micro_batch", 4},
      {"seq_len", 8},
      {"transport", "thread"},
      {"ranks", 1},
      {"threads", 2},
      {"layout", {{"dp", 1}}},
      {"tokens_per_second", 100.0},
      {"parts", {{{"name", "add"}, {"seconds", 0.5}}, {{"name", "zero"}, {"seconds", 0.1}}}}};
  nlohmann::json now = saved;
  now["precision"] = "bf16";
  now["tokens_per_second"] = 150.0;
  now["parts"] = {{{"name", "add"}, {"seconds", 0.25}}, {{"name", "copy"}, {"seconds", 0.1}}};
  StepRatios const ratios = compare_steps("a.json", saved, now);
  CHECK(ratios.total == Approx(1.5));
  CHECK(ratios.parts == std::map<std::string, double>{{"add", 2.0}});
  CHECK(ratios.only_here == std::vector<std::string>{"copy"});
  CHECK(ratios.only_there == std::vector<std::string>{"zero"});
  CHECK(ratios.differences == std::vector<std::string>{"precision: \"fp32\", here \"bf16\""});
  CHECK_THROWS_AS(read_saved_step("no such file"), ConfigError);
}

TEST_CASE("the switches of a ring lead from each layout to the next, and bring all of its state") {
  Config const config = small();
  Layout const cut{2, 1, 1, 1, 1}, whole{2, 1, 1}, stages{1, 1, 2};
  std::vector<Layout> const ring{cut, whole, stages};
  auto const bench = on_ranks<SwitchBench>(2, [&](Communicator& world, Backend& backend) {
    return bench_switch(config, world, ring, backend, 2, -1);
  });
  REQUIRE(bench.legs.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(bench.legs[i].from == ring[i]);
    CHECK(bench.legs[i].to == ring[(i + 1) % 3]);
    CHECK(bench.legs[i].step_after == bench.legs[(i + 1) % 3].step_before);
  }
  // Master, m and v of every parameter: cut or in stages once, whole on both ranks.
  std::int64_t const state = 3 * 4 * parameter_count(config.model);
  CHECK(bench.legs[0].bytes_moved == state);  // either rank's half to the other
  CHECK(bench.legs[0].bytes_local == state);
  CHECK(bench.legs[1].bytes_moved == 0);
  CHECK(bench.legs[1].bytes_local == state);
  CHECK(bench.legs[2].bytes_moved + bench.legs[2].bytes_local == state);
}

TEST_CASE("a switch for which there is no memory ends the benchmark with the reason") {
  Config const config = small();
  std::vector<Layout> const ring{{2, 1, 1}, {1, 1, 2}};
  CHECK_THROWS_WITH(on_ranks<SwitchBench>(2,
                                          [&](Communicator& world, Backend& backend) {
                                            return bench_switch(config, world, ring, backend, 1, 0);
                                          }),
                    Catch::Contains("no room") && Catch::Contains("dp 1 x tp 1 x pp 2"));
}
