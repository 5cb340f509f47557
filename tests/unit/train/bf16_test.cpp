// Training in bf16: how far it may be from fp32, and one layout from another.
#include <catch2/catch.hpp>
#include <cmath>
#include <mutex>

#include "copus/train/resolve.h"
#include "support/bf16_bounds.h"

using namespace copus;
using test::Reference;
using test::StepNumbers;

namespace {

StepNumbers numbers_of(const Reference& reference, const std::vector<Layout>& layouts,
                       std::int64_t micro, Precision precision) {
  int ranks = 1;
  for (const Layout& layout : layouts) ranks = std::max(ranks, layout.world());
  StepNumbers numbers;
  std::mutex mutex;
  run_ranks(ranks, [&](int rank, Communicator& world) {
    StepNumbers const mine =
        test::run_reference(world, reference, layouts, micro, Trainer::kKeptMeshes, precision);
    std::lock_guard const lock(mutex);
    if (rank == 0) numbers = mine;
  });
  return numbers;
}

}  // namespace

TEST_CASE("bf16 steps are fp32 steps within the roundings of activations", "[bf16]") {
  for (const char* name : test::kReferenceNames) {
    Reference const reference(name);
    ModelConfig const model = reference.config(2).model;
    StepNumbers const half = numbers_of(reference, {Layout{}}, 2, Precision::bf16);
    StepNumbers const full = numbers_of(reference, {Layout{}}, 2, Precision::fp32);
    CAPTURE(name);
    CHECK(test::bf16_deviation(model, half, full, 1.0) == "");
    CHECK(half.losses != full.losses);  // it is not fp32 under another name
  }
}

TEST_CASE("in bf16 every layout takes the one-rank run's steps, within roundings", "[bf16]") {
  for (const char* name : test::kReferenceNames) {
    Reference const reference(name);
    ModelConfig const model = reference.config(1).model;
    StepNumbers const one = numbers_of(reference, {Layout{}}, 1, Precision::bf16);
    for (const Layout& layout :
         std::vector<Layout>{{2, 1, 1, 1, 1}, {1, 2, 1, 1, 0, true}, {2, 2, 2, 1, 1}}) {
      if (!test::legal(reference, layout, 1)) continue;
      CAPTURE(name, to_string(layout));
      // Two runs, each with errors of its own.
      CHECK(test::bf16_deviation(model, numbers_of(reference, {layout}, 1, Precision::bf16), one,
                                 std::sqrt(2.0)) == "");
    }
  }
}

TEST_CASE("micro-batches and data-parallel ranks change a bf16 step by fp32 roundings alone",
          "[bf16]") {
  // A sample's activations are the same bits in any of them; only sums of gradients, which are
  // fp32, are ordered otherwise, and the weights that follow round alike but for a few.
  Reference const reference("llama-gqa");
  StepNumbers const one = numbers_of(reference, {Layout{}}, 4, Precision::bf16);
  for (auto const& [layout, micro] :
       std::vector<std::pair<Layout, std::int64_t>>{{Layout{}, 1}, {Layout{2, 1, 1, 1, 1}, 2}}) {
    StepNumbers const other = numbers_of(reference, {layout}, micro, Precision::bf16);
    CHECK(other.losses[0] == Approx(one.losses[0]).epsilon(test::kLoss));
    CHECK(other.norms[0] == Approx(one.norms[0]).epsilon(test::kNorm));
  }
}

TEST_CASE("a bf16 run goes round a ring of layouts with the same state, and on with its steps",
          "[bf16]") {
  Reference const reference("llama-tied");
  ModelConfig const model = reference.config(1).model;
  StepNumbers const ring = numbers_of(reference, test::ring_of_layouts(), 1, Precision::bf16);
  REQUIRE(ring.switches.size() == 7);
  for (const SwitchRecord& record : ring.switches) CHECK(record.refused == "");
  CHECK(test::bf16_deviation(model, ring, numbers_of(reference, {Layout{}}, 1, Precision::bf16),
                             std::sqrt(2.0)) == "");
}

TEST_CASE("drawn weights have the same hash in bf16 and fp32, on every layout", "[bf16]") {
  Reference const reference("gpt2");  // tied, so that pp has copies
  std::vector<std::uint64_t> hashes;
  for (Precision const precision : {Precision::fp32, Precision::bf16}) {
    for (const Layout& layout : std::vector<Layout>{{}, {2, 2, 2, 1, 1, true}, {2, 1, 2}}) {
      Config config = reference.config(1);
      config.train.precision = precision;
      run_ranks(layout.world(), [&](int rank, Communicator& world) {
        auto const backend = make_cpu_backend(1);
        Trainer trainer(config, world, layout, 1, *backend);
        trainer.draw_weights(5);
        std::uint64_t const hash = trainer.weight_hash();
        if (rank == 0) hashes.push_back(hash);
      });
    }
  }
  for (std::uint64_t const hash : hashes) CHECK(hash == hashes.front());
}

TEST_CASE("over 200 steps bf16 learns what fp32 learns", "[bf16]") {
  Reference const reference("gpt2");
  std::vector<std::vector<double>> losses;
  for (Precision const precision : {Precision::fp32, Precision::bf16}) {
    Config config = reference.config(2);
    config.train.precision = precision;
    config.train.tokens = 200 * 8 * config.model.seq_len;
    auto const world = make_single_communicator();
    auto const backend = make_cpu_backend(1);
    Trainer trainer(config, *world, Layout{}, 2, *backend);
    trainer.read_weights(HfModel(reference.directory, config.model));
    losses.emplace_back();
    for (int s = 0; s < 200; ++s) {
      trainer.state().counters.samples = s % 8 * 8;  // round the reference's text
      losses.back().push_back(trainer.step(test::samples_of(reference), 8).loss);
    }
  }
  double const bound = test::loss_bound(reference.config(2).model);
  // One step's forward pass keeps the bound. Two hundred steps amplify their first roundings, in
  // fp32 as in bf16, so that single steps part by chance; what bf16 costs is their mean.
  double gaps = 0.0, last_round = 0.0, worst = 0.0;
  for (std::size_t s = 0; s < 200; ++s) {
    double const gap = losses[1][s] - losses[0][s];
    gaps += std::abs(gap) / 200.0;
    if (s >= 192) last_round += gap / 8.0;
    worst = std::max(worst, std::abs(gap));
  }
  INFO("fp32 goes from " << losses[0].front() << " to " << losses[0].back() << ", bf16 to "
                         << losses[1].back() << "; apart by " << gaps << " on average, " << worst
                         << " at most, by " << last_round << " over the last round of the text");
  CHECK(std::abs(losses[0][0] - losses[1][0]) <= bound);
  CHECK(gaps <= bound);
  CHECK(last_round <= bound);
  CHECK(losses[0].back() < 0.8 * losses[0].front());
}

TEST_CASE("bf16 is refused by name where the device has no bf16 products", "[bf16]") {
  Config config;
  Gpu ampere, turing;
  ampere.capability = 80;
  turing.name = "Tesla T4";
  turing.capability = 75;
  CHECK(precision_problem(config, nullptr) == "");
  CHECK(precision_problem(config, &turing) == "");
  config.train.precision = Precision::bf16;
  CHECK(precision_problem(config, &ampere) == "");
  CHECK(precision_problem(config, &turing).find("train.precision: \"bf16\": Tesla T4 (sm_75)") ==
        0);
  config.train.emulate_bf16 = true;
  CHECK(precision_problem(config, nullptr) == "");
  CHECK(precision_problem(config, &turing) != "");
  config.train.emulate_bf16 = false;
  std::string const problem = precision_problem(config, nullptr);
  if (cpu_bf16_problem().empty()) {
    CHECK(problem == "");
  } else {
    CHECK(problem.find(cpu_bf16_problem()) != std::string::npos);
    CHECK(problem.find("train.emulate_bf16 true") != std::string::npos);
    CHECK(problem.find("\"fp32\"") != std::string::npos);
  }
}
