#include <algorithm>
#include <catch2/catch.hpp>

#include "copus/plan/trials.h"

using namespace copus;

namespace {

Config config_of(std::int64_t tokens) {
  Config config;
  ModelConfig& model = config.model;
  model.layers = 8;
  model.hidden = 512;
  model.heads = model.kv_heads = 8;
  model.ffn = 1536;
  model.vocab = 8192;
  model.seq_len = 512;
  config.batch.sequences = 32;
  config.batch.min = 8;
  config.batch.max = 128;
  config.train.tokens = tokens;
  config.adapt.mode = AdaptMode::act;
  return config;
}

Cluster cluster_of_four() {
  Cluster cluster;
  cluster.hardware = hardware_preset("h100-sxm");
  cluster.nodes = 1;
  cluster.gpus_per_node = 4;
  return cluster;
}

double seconds(const Config& config, const Configuration& configuration) {
  PlanTable const rows = planned_rows(config, cluster_of_four(), 4);
  for (const PlanRow& row : rows)
    if (row.configuration == configuration) return row.predicted.seconds(row.micro_batches());
  FAIL("a trial that is no candidate");
  return 0.0;
}

}  // namespace

TEST_CASE(
    "trials are the best predictions at the first batch, best first, two of a layout at most") {
  Config const config = config_of(1'000'000'000);
  std::vector<Configuration> const trials = trials_of(config, cluster_of_four(), 4);
  REQUIRE(trials.size() >= 2);
  CHECK(trials.size() <= 6);
  double best = 1e30;
  for (const PlanRow& row : planned_rows(config, cluster_of_four(), 4))
    if (row.configuration.batch == 32)
      best = std::min(best, row.predicted.seconds(row.micro_batches()));
  CHECK(seconds(config, trials.front()) == best);
  for (std::size_t i = 0; i < trials.size(); ++i) {
    CHECK(trials[i].batch == 32);
    CHECK(seconds(config, trials[i]) <= 1.3 * best);
    if (i > 0) CHECK(seconds(config, trials[i]) >= seconds(config, trials[i - 1]));
    std::int64_t of_layout = 0;
    for (const Configuration& other : trials)
      of_layout += other.shape.layout == trials[i].shape.layout ? 1 : 0;
    CHECK(of_layout <= 2);
  }
}

TEST_CASE("keys that are given stay in every trial") {
  Config config = config_of(1'000'000'000);
  config.parallel.pp = 2;
  config.batch.micro = 4;
  std::vector<Configuration> const trials = trials_of(config, cluster_of_four(), 4);
  REQUIRE_FALSE(trials.empty());
  for (const Configuration& trial : trials)
    CHECK((trial.shape.layout.pp == 2 && trial.shape.micro == 4));
}

TEST_CASE("a run of a few steps begins with the best prediction and tries nothing else") {
  std::vector<Configuration> const trials =
      trials_of(config_of(5 * 32 * 512), cluster_of_four(), 4);
  REQUIRE(trials.size() == 1);
  CHECK(trials.front() == trials_of(config_of(1'000'000'000), cluster_of_four(), 4).front());
}

TEST_CASE("the trial with the smallest median wins, the earlier of equal ones") {
  TrialTimes times(4);
  for (double const t : {3.0, 9.0, 3.0}) times.add(t);
  times.next();
  for (double const t : {2.0, 2.0, 90.0}) times.add(t);
  times.next();
  for (double const t : {2.0, 2.0, 2.0}) times.add(t);
  CHECK(times.fastest() == 1);
  CHECK_FALSE(times.at_last());
  times.next();
  CHECK(times.at_last());
  CHECK(times.fastest() == 1);  // the last has no step yet
}

TEST_CASE("a trial that never ran is not the fastest") {
  TrialTimes times(3);
  for (int i = 0; i < 3; ++i) times.add(2.0);
  times.next();  // refused
  times.next();
  for (int i = 0; i < 3; ++i) times.add(1.0);
  CHECK(times.ran(0));
  CHECK_FALSE(times.ran(1));
  CHECK_FALSE(times.hopeless());
  CHECK(times.fastest() == 2);
}

TEST_CASE("a trial is given up when all of its steps are far behind, and not for one of them") {
  TrialTimes times(2);
  CHECK_FALSE(times.hopeless());
  for (double const t : {1.0, 1.1, 0.9}) times.add(t);
  CHECK_FALSE(times.hopeless());
  times.next();
  CHECK_FALSE(times.hopeless());
  times.add(4.0);
  CHECK(times.hopeless());
  times.add(1.4);
  CHECK_FALSE(times.hopeless());
}
