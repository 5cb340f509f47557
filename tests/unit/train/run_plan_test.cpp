#include <catch2/catch.hpp>

#include "copus/train/run_plan.h"

using namespace copus;

namespace {

Config config_of() {
  Config config;
  ModelConfig& model = config.model;
  model.layers = 8;
  model.hidden = 64;
  model.heads = model.kv_heads = 4;
  model.ffn = 128;
  model.vocab = 257;
  model.seq_len = model.max_positions = 32;
  config.batch.sequences = 16;
  config.batch.min = 8;
  config.batch.max = 64;
  config.parallel.zero.reset();
  return config;
}

// dp 2 x tp 2 x pp 2 with two virtual stages, ZeRO 1 and sequence parallelism.
RunPlan chosen() {
  return {{2, 2, 2, 2, 1, true}, 2, 32};
}

}  // namespace

TEST_CASE("a planner's choice is gone on with where the configuration leaves its keys open") {
  CHECK(plan_problem(chosen(), config_of(), 8).empty());
  CHECK(run_plan(chosen_plan(chosen())) == chosen());
}

TEST_CASE("a choice that goes against a key that is given now is not gone on with") {
  struct Key {
    const char* name;
    void (*give)(Config&);
  };
  for (const Key& key :
       {Key{"parallel.dp", [](Config& c) { c.parallel.dp = 4; }},
        Key{"parallel.tp", [](Config& c) { c.parallel.tp = 1; }},
        Key{"parallel.pp", [](Config& c) { c.parallel.pp = 1; }},
        Key{"parallel.virtual_stages", [](Config& c) { c.parallel.virtual_stages = 1; }},
        Key{"parallel.zero", [](Config& c) { c.parallel.zero = 0; }},
        Key{"parallel.sequence_parallel", [](Config& c) { c.parallel.sequence_parallel = false; }},
        Key{"batch.micro", [](Config& c) { c.batch.micro = 1; }}}) {
    Config config = config_of();
    key.give(config);
    CHECK_THAT(plan_problem(chosen(), config, 8), Catch::StartsWith(key.name));
  }
  Config split = config_of();
  split.parallel.sequence_parallel = false;
  CHECK(plan_problem(chosen(), split, 8) ==
        "parallel.sequence_parallel is false now, and it had chosen true");
  Config same = config_of();
  same.parallel = {2, 2, 2, 2, 1, true, same.parallel.recompute};
  same.batch.micro = 2;
  CHECK(plan_problem(chosen(), same, 8).empty());
}

TEST_CASE("keys that do nothing in the chosen layout do not speak against it") {
  Config config = config_of();
  config.parallel.virtual_stages = 2;
  config.parallel.zero = 1;
  config.parallel.sequence_parallel = true;
  CHECK(plan_problem({{1, 1, 1, 1, 0, false}, 2, 32}, config, 8).empty());
}

TEST_CASE("a choice must take every batch of a schedule, and a batch within its bounds") {
  Config config = config_of();
  CHECK_THAT(plan_problem({{2, 1, 1, 1, 0, false}, 2, 128}, config, 8),
             Catch::Contains("batch.max 64"));
  config.batch.schedule = {{0, 16}, {1000, 18}};
  CHECK(plan_problem({{2, 1, 1, 1, 0, false}, 1, {}}, config, 8).empty());
  CHECK_FALSE(plan_problem({{4, 1, 1, 1, 0, false}, 1, {}}, config, 8).empty());
  CHECK_FALSE(plan_problem(chosen(), config, 4).empty());  // too few ranks
}
