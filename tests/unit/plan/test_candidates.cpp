#include <algorithm>
#include <catch2/catch.hpp>
#include <iterator>
#include <set>
#include <tuple>

#include "copus/core/config_io.h"
#include "copus/core/error.h"
#include "copus/plan/candidates.h"

namespace copus {
namespace {

// 12 heads (4 of keys), 6 layers: tp 1 2 3 4 6 12 divide the heads, of which 3 and 6 do not go with
// the kv heads.
Config small() {
  Config config;
  config.model.family = Family::llama;
  config.model.layers = 6;
  config.model.hidden = 96;
  config.model.heads = 12;
  config.model.kv_heads = 4;
  config.model.ffn = 192;
  config.model.vocab = 500;
  config.model.seq_len = config.model.max_positions = 24;
  config.batch.sequences = 24;
  config.parallel.zero.reset();
  return config;
}

Cluster cluster_of_size(std::int64_t bytes = std::int64_t{80} << 30) {
  Cluster cluster;
  cluster.hardware = hardware_preset("h100-sxm");
  cluster.hardware.between.bytes_per_second = 50e9;
  cluster.hardware.memory_bytes = bytes;
  cluster.hardware.reserved_bytes = 0;
  cluster.gpus_per_node = 4;
  cluster.nodes = 6;
  return cluster;
}

using Key = std::tuple<int, int, int, int, int, bool, std::int64_t, std::int64_t, Recompute>;
Key key_of(const Candidate& c) {
  const Layout& l = c.shape.layout;
  return {l.dp,
          l.tp,
          l.pp,
          l.virtual_stages,
          l.zero,
          l.sequence_parallel,
          c.shape.micro,
          c.batch,
          c.shape.recompute};
}

// Every candidate of a world, by the rules alone: loops over everything, filters by what the
// contract says.
std::set<Key> by_the_rules(const Config& config, int world) {
  std::set<Key> all;
  const ModelConfig& m = config.model;
  std::int64_t const batch = config.batch.sequences;
  for (int tp = 1; tp <= world; ++tp) {
    bool const kv = m.kv_heads % tp == 0 || tp % m.kv_heads == 0;
    if (m.heads % tp != 0 || m.ffn % tp != 0 || !kv) continue;
    for (int pp = 1; pp <= m.layers; ++pp) {
      for (int dp = 1; dp <= world; ++dp) {
        if (dp * tp * pp != world || batch % dp != 0) continue;
        for (int v = 1; v <= m.layers; ++v) {
          if (v > 1 && m.layers % (pp * v) != 0) continue;
          for (std::int64_t micro = 1; micro <= batch; ++micro) {
            if (batch % (dp * micro) != 0) continue;
            if (v > 1 && batch / (dp * micro) % pp != 0) continue;
            for (int zero : {0, 1}) {
              for (bool sequence : {false, true}) {
                if (sequence && m.seq_len % tp != 0) continue;
                for (Recompute recompute :
                     {Recompute::none, Recompute::selective, Recompute::full}) {
                  all.insert({dp, tp, pp, v, zero, sequence, micro, batch, recompute});
                }
              }
            }
          }
        }
      }
    }
  }
  return all;
}

}  // namespace

TEST_CASE("\"auto\" lists every legal candidate that fills the world, once, and no other") {
  Config const config = small();
  for (int world : {1, 2, 4, 6, 8, 12, 24}) {
    CAPTURE(world);
    std::set<Key> found;
    std::vector<Candidate> const all = candidates_of(config, cluster_of_size(), world);
    for (const Candidate& candidate : all) found.insert(key_of(candidate));
    CHECK(found.size() == all.size());
    CHECK(found == by_the_rules(config, world));
  }
}

TEST_CASE("a key that is given is kept, whatever the others come to") {
  Config config = small();
  config.parallel.tp = 2;
  config.parallel.zero = 1;
  config.parallel.recompute = Recompute::full;
  config.parallel.virtual_stages = 1;
  config.parallel.sequence_parallel = false;
  config.batch.micro = 3;
  std::vector<Candidate> const all = candidates_of(config, cluster_of_size(), 8);
  REQUIRE_FALSE(all.empty());
  for (const Candidate& c : all) {
    CHECK(c.shape.layout.tp == 2);
    CHECK(c.shape.layout.zero == 1);
    CHECK(c.shape.layout.virtual_stages == 1);
    CHECK_FALSE(c.shape.layout.sequence_parallel);
    CHECK(c.shape.recompute == Recompute::full);
    CHECK(c.shape.micro == 3);
    CHECK(c.shape.layout.world() == 8);
  }
  config.parallel.dp = 2;
  config.parallel.pp = 2;
  CHECK(candidates_of(config, cluster_of_size(), 8).size() == 1);
}

TEST_CASE("ranks idle only where no legal layout fills the world") {
  Config config = small();
  CHECK(layouts_of(config, 8).ranks == 8);
  // 7 ranks: only dp 7, or pp 7 > 6 layers; 24 sequences are no multiple of 7.
  CHECK(layouts_of(config, 7).ranks == 6);
  config.parallel.dp = 5;
  CHECK_THROWS_AS(layouts_of(config, 8), ConfigError);
  config.batch.sequences = 25;
  CHECK(layouts_of(config, 8).ranks == 5);
}

TEST_CASE("S9: a batch that fits no layout is refused with the nearest batches that would") {
  Config config = small();
  config.parallel.dp = 5;
  CHECK_THROWS_WITH(layouts_of(config, 8),
                    Catch::Contains("batch.sequences 24") && Catch::Contains("20 or 25"));
  config = small();
  config.batch.micro = 48;
  CHECK_THROWS_WITH(layouts_of(config, 8),
                    Catch::Contains("batch.sequences 24") && Catch::Contains("48"));
  config = small();
  config.parallel.tp = 5;
  CHECK_THROWS_WITH(layouts_of(config, 8),
                    Catch::Contains("parallel.tp 5") && Catch::Contains("4"));
  config = small();
  config.parallel.dp = 4;
  config.parallel.tp = 4;
  config.parallel.pp = 1;
  CHECK_THROWS_WITH(layouts_of(config, 8), Catch::Contains("16 ranks") && Catch::Contains("has 8"));
}

TEST_CASE("S9: a layout that some batch of the schedule does not fit is refused by that batch") {
  Config config = small();
  config.batch.schedule = {{0, 12}, {1000, 24}, {2000, 40}};
  config.batch.sequences = 12;
  std::vector<Candidate> const all = candidates_of(config, cluster_of_size(), 12);
  std::set<std::int64_t> batches;
  for (const Candidate& c : all) {
    batches.insert(c.batch);
    const Layout& l = c.shape.layout;
    std::int64_t const unit = l.virtual_stages > 1 ? l.dp * l.pp : l.dp;
    bool const takes_all = 12 % unit == 0 && 24 % unit == 0 && 40 % unit == 0;
    CAPTURE(to_string(l), c.batch, c.reason);
    CHECK(c.feasible == takes_all);
    if (!takes_all) CHECK_THAT(c.reason, Catch::Contains("batch.schedule comes to"));
  }
  CHECK(batches == std::set<std::int64_t>{12, 24, 40});
}

TEST_CASE("the ladder of batches stays within min and max and has both") {
  Config config;
  BatchConfig& batch = config.batch;
  batch.sequences = 64;
  CHECK(batches_of(config, 1) == std::vector<std::int64_t>{64});
  batch.min = 16;
  batch.max = 300;
  CHECK(batches_of(config, 1) ==
        std::vector<std::int64_t>{16, 24, 32, 48, 64, 96, 128, 192, 256, 300});
  batch.min = 0;
  CHECK(batches_of(config, 1).front() == 64);
}

TEST_CASE(
    "whatever dp and micro-batch, from one rung of the ladder to the next is a factor of two") {
  for (std::int64_t sequences : {8, 9, 12, 15, 24, 64, 100}) {
    for (std::int64_t min : {1, 2, 4, 7}) {
      for (std::int64_t max : {sequences, 3 * sequences, std::int64_t{300}}) {
        for (int world : {1, 4, 6, 8}) {
          for (std::int64_t micro : {0, 1, 2, 3}) {
            Config config;
            config.batch.sequences = sequences;
            config.batch.min = min;
            config.batch.max = max;
            if (micro > 0) config.batch.micro = micro;
            std::vector<std::int64_t> const all = batches_of(config, world);
            CAPTURE(sequences, min, max, world, micro);
            CHECK((all.front() >= min && all.back() <= max));
            for (int dp = 1; dp <= world; ++dp) {
              std::int64_t const unit = dp * std::max<std::int64_t>(1, micro);
              if (world % dp != 0 || sequences % unit != 0) continue;
              std::vector<std::int64_t> mine;
              std::copy_if(all.begin(), all.end(), std::back_inserter(mine),
                           [&](std::int64_t batch) { return batch % unit == 0; });
              CHECK(mine.front() - min < unit);
              CHECK(max - mine.back() < unit);
              for (std::size_t i = 1; i < mine.size(); ++i) CHECK(mine[i] <= 2 * mine[i - 1]);
            }
          }
        }
      }
    }
  }
}

TEST_CASE("for a run, keys that do nothing hide no layout and make no second name") {
  Config config = small();
  auto const names = [&] {
    std::set<std::tuple<int, int, int, int, int, bool>> found;
    std::size_t count = 0;
    for (const Layout& l : layouts_of(config, 12, CandidateUse::run).layouts) {
      found.insert({l.dp, l.tp, l.pp, l.virtual_stages, l.zero, l.sequence_parallel});
      CHECK((l.pp > 1 || l.virtual_stages == 1));
      CHECK((l.tp > 1 || !l.sequence_parallel));
      ++count;
    }
    CHECK(found.size() == count);
    return found;
  };
  for (const auto& [dp, tp, pp, v, zero, sequence] : names()) CHECK((dp > 1 || zero == 0));
  // Given, they do nothing where they can do nothing.
  config.parallel.sequence_parallel = true;
  config.parallel.virtual_stages = 2;
  config.parallel.zero = 1;
  auto const given = names();
  CHECK(given.count({12, 1, 1, 1, 1, false}) == 1);
  CHECK(given.count({1, 12, 1, 1, 1, true}) == 1);
  CHECK(given.count({4, 1, 3, 2, 1, false}) == 1);
  // Where the layers do not halve, a single stage needs them not to.
  config.model.layers = 5;
  CHECK(names() == std::set<std::tuple<int, int, int, int, int, bool>>{{12, 1, 1, 1, 1, false},
                                                                       {6, 2, 1, 1, 1, true},
                                                                       {3, 4, 1, 1, 1, true},
                                                                       {1, 12, 1, 1, 1, true}});
}

TEST_CASE("what memory does not hold is refused with the stage, the sizes and the largest part") {
  Config const config = small();
  std::vector<Candidate> const all = candidates_of(config, cluster_of_size(), 4);
  std::vector<std::int64_t> totals;
  for (const Candidate& c : all) {
    CHECK(c.feasible);
    CHECK(c.reason.empty());
    totals.push_back(c.memory.plan.total());
  }
  std::sort(totals.begin(), totals.end());
  std::int64_t const limit = totals[totals.size() / 2];
  for (const Candidate& c : candidates_of(config, cluster_of_size(limit), 4)) {
    CHECK(c.feasible == (c.memory.plan.total() <= limit));
    if (!c.feasible) {
      CHECK_THAT(c.reason, Catch::Contains("stage ") && Catch::Contains("needs ") &&
                               Catch::Contains("the largest part is "));
    }
  }
}

TEST_CASE("a candidate's memory and step are those of its own micro-batches") {
  Config const config = small();
  Cluster const cluster = cluster_of_size();
  for (const Candidate& c : candidates_of(config, cluster, 12)) {
    std::int64_t const m = c.batch / (c.shape.layout.dp * c.shape.micro);
    CHECK(c.micro_batches() == m);
    StageMemory const memory = worst_stage(config.model, c.shape.layout, c.shape.micro, m,
                                           Precision::fp32, c.shape.recompute);
    CHECK(c.memory.plan.total() == memory.plan.total());
    CHECK(c.memory.pp_rank == memory.pp_rank);
    CHECK(c.step_seconds() > 0.0);
    CHECK(c.tokens_per_second(config.model) ==
          Approx(static_cast<double>(c.batch * 24) / c.step_seconds()));
  }
}

TEST_CASE("for a run, a candidate's memory is that of the arena, for the largest batch to come") {
  Config config = small();
  config.batch.min = 12;
  config.batch.max = 96;
  for (const Candidate& c : candidates_of(config, cluster_of_size(), 12, CandidateUse::run)) {
    std::int64_t const most = 96 / (c.shape.layout.dp * c.shape.micro);
    StageMemory const memory =
        worst_stage(config.model, c.shape.layout, c.shape.micro, std::max<std::int64_t>(1, most),
                    Precision::fp32, c.shape.recompute);
    CAPTURE(to_string(c.shape.layout), c.shape.micro, c.batch);
    CHECK(c.memory.plan.total() == memory.plan.total());
    CHECK(c.memory.pp_rank == memory.pp_rank);
  }
}

TEST_CASE("measuring the noise scale counts in memory, with and without sequence parallelism") {
  Config config = small();
  config.adapt.mode = AdaptMode::log;
  Cluster const cluster = cluster_of_size();
  bool any = false;
  for (const Candidate& c : candidates_of(config, cluster, 8)) {
    StageMemory const memory =
        worst_stage(config.model, c.shape.layout, c.shape.micro, c.micro_batches(), Precision::fp32,
                    c.shape.recompute, true);
    CAPTURE(to_string(c.shape.layout));
    CHECK(c.memory.plan.total() == memory.plan.total());
    any = any || c.memory.plan.bytes("noise_scale") > 0;
  }
  CHECK(any);
}

}  // namespace copus
