// Every layout against the independent float64 values, not against itself.
#include <catch2/catch.hpp>
#include <cmath>
#include <mutex>

#include "copus/train/trainer.h"
#include "support/reference.h"

using namespace copus;
using copus::test::Reference;

namespace {

constexpr double kLoss = 2e-5, kNorm = 2e-4;  // relative; asked for by the issue, fp32 reaches 1e-6

struct Case {
  int dp, tp, pp, zero, virtual_stages = 1;
};

// What a run of the reference's eight steps gave on every rank.
struct Outcome {
  std::vector<double> losses, norms;
  double after = 0.0;
  std::uint64_t hash = 0;
};

Outcome run(const Reference& reference, const Layout& layout, std::int64_t micro) {
  Outcome outcome;
  std::mutex mutex;
  Config const config = reference.config(micro);
  SampleSource const samples = [&](std::int64_t index, std::span<std::int32_t> inputs,
                                   std::span<std::int32_t> targets) {
    reference.sample(index, inputs, targets);
  };
  run_ranks(layout.world(), [&](int rank, Communicator& world) {
    auto const backend = make_cpu_backend(1);
    Trainer trainer(config, world, layout, micro, *backend);
    trainer.read_weights(HfModel(reference.directory, config.model));
    Outcome mine;
    mine.hash = trainer.weight_hash();
    for (std::size_t s = 0; s < reference.values["train"]["losses"].size(); ++s) {
      StepRecord const record = trainer.step(samples, config.batch.sequences);
      mine.losses.push_back(record.loss);
      mine.norms.push_back(record.grad_norm);
    }
    trainer.state().counters.samples = 0;
    mine.after = trainer.step(samples, 96 / (layout.dp * micro) * (layout.dp * micro)).loss;
    std::lock_guard const lock(mutex);
    if (rank > 0) {
      // Everybody acts on the same numbers.
      CHECK((outcome.losses.empty() || outcome.losses == mine.losses));
      CHECK((outcome.norms.empty() || outcome.norms == mine.norms));
    }
    outcome = mine;
  });
  return outcome;
}

bool legal(const Reference& reference, const Layout& layout, std::int64_t micro) {
  Config const config = reference.config(micro);
  return illegal_reasons(config.model, layout, config.batch.sequences, micro).empty();
}

// Whether the layout is legal for the model; if so it is compared.
bool compare(const char* name, const Case& c, std::int64_t micro, bool sequence_parallel) {
  Reference const reference(name);
  Layout const layout{c.dp, c.tp, c.pp, c.virtual_stages, c.zero, sequence_parallel};
  CAPTURE(name, to_string(layout), micro, sequence_parallel);
  if (!legal(reference, layout, micro)) return false;
  Outcome const outcome = run(reference, layout, micro);
  nlohmann::json const& expected = reference.values["train"];
  for (std::size_t s = 0; s < outcome.losses.size(); ++s) {
    double const loss = expected["losses"][s], norm = expected["grad_norms"][s];
    CAPTURE(s);
    CHECK(std::abs(outcome.losses[s] - loss) < kLoss * loss);
    CHECK(std::abs(outcome.norms[s] - norm) < kNorm * norm);
  }
  double const after = expected["loss_after"];
  CHECK(std::abs(outcome.after - after) < kLoss * after);
  return true;
}

}  // namespace

TEST_CASE("every layout follows the references (E1, E4, E5, E6, E7, E9, E11, E12, U4)",
          "[layouts]") {
  int compared = 0;
  for (const char* name : test::kReferenceNames) {
    for (const Case& c : {Case{2, 1, 1, 0}, Case{1, 2, 1, 0}, Case{1, 1, 2, 0}, Case{2, 2, 1, 1},
                          Case{2, 1, 2, 1}, Case{1, 2, 2, 0}, Case{2, 2, 2, 1}, Case{4, 1, 1, 1},
                          Case{8, 1, 1, 1}, Case{1, 1, 2, 1}}) {
      for (std::int64_t micro : {1, 2}) {
        for (bool sequence_parallel : {false, true}) {
          if (sequence_parallel && c.tp == 1) continue;  // a legal no-op, refused nowhere
          compared += compare(name, c, micro, sequence_parallel) ? 1 : 0;
        }
      }
    }
  }
  // Ten layouts, two micro-batches, with and without sequence parallelism where tp > 1; only dp 8
  // at micro 2 does not divide the batch of 8.
  CHECK(compared == 4 * (10 * 2 + 4 * 2 - 1));
}

TEST_CASE("kv heads replicated over tp, uneven stages and interleaved stages follow the references",
          "[layouts]") {
  CHECK(compare("qwen2", {1, 8, 1, 0}, 2, false));
  CHECK(compare("qwen2", {2, 8, 1, 1}, 2, true));
  CHECK(compare("llama-gqa", {1, 1, 2, 0}, 1, false));  // 3 layers over 2
  CHECK(compare("llama-tied", {1, 1, 4, 0}, 2, false));
  CHECK(compare("llama-tied", {1, 1, 2, 0, 2}, 2, false));
  CHECK(compare("llama-tied", {2, 2, 2, 1, 2}, 1, true));
}

TEST_CASE(
    "recomputation changes no bit of losses and norms, on one rank and on several, with dropout",
    "[layouts]") {
  for (const char* name : test::kReferenceNames) {
    Reference const reference(name);
    SampleSource const samples = [&](std::int64_t index, std::span<std::int32_t> inputs,
                                     std::span<std::int32_t> targets) {
      reference.sample(index, inputs, targets);
    };
    for (Layout const& layout : {Layout{}, Layout{1, 2, 2, 1, 0, true}}) {
      std::vector<std::vector<double>> seen;
      for (Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
        Config config = reference.config(2);
        config.model.dropout = 0.1;
        config.parallel.recompute = recompute;
        std::vector<double> numbers;
        run_ranks(layout.world(), [&](int rank, Communicator& world) {
          auto const backend = make_cpu_backend(1);
          Trainer trainer(config, world, layout, 2, *backend);
          trainer.read_weights(HfModel(reference.directory, config.model));
          for (int s = 0; s < 3; ++s) {
            StepRecord const record = trainer.step(samples, 8);
            if (rank == 0) numbers.insert(numbers.end(), {record.loss, record.grad_norm});
          }
        });
        seen.push_back(numbers);
      }
      CAPTURE(name, to_string(layout));
      CHECK(seen[1] == seen[0]);
      CHECK(seen[2] == seen[0]);
    }
  }
}

TEST_CASE("E3: drawn weights have the same hash on every layout") {
  Reference const reference("llama-tied");
  std::vector<std::uint64_t> hashes;
  for (Layout const& layout : {Layout{}, Layout{2, 2, 2, 1, 1, true}, Layout{1, 4, 1},
                               Layout{1, 1, 4}, Layout{3, 1, 1, 1, 1}}) {
    run_ranks(layout.world(), [&](int rank, Communicator& world) {
      auto const backend = make_cpu_backend(1);
      Trainer trainer(reference.config(1), world, layout, 1, *backend);
      trainer.draw_weights(5);
      std::uint64_t const hash = trainer.weight_hash();
      if (rank == 0) hashes.push_back(hash);
    });
  }
  for (std::uint64_t hash : hashes) CHECK(hash == hashes.front());
}
