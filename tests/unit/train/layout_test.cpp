// Every layout against the independent float64 values, not against itself.
#include <catch2/catch.hpp>
#include <mutex>

#include "support/layout_run.h"

using namespace copus;
using copus::test::Reference;
using copus::test::StepNumbers;

namespace {

// Whether the layout is legal for the model; if so it is compared.
bool compare(const char* name, const Layout& layout, std::int64_t micro) {
  Reference const reference(name);
  CAPTURE(name, to_string(layout), micro, layout.sequence_parallel);
  if (!test::legal(reference, layout, micro)) return false;
  std::mutex mutex;
  std::vector<StepNumbers> seen;
  run_ranks(layout.world(), [&](int, Communicator& world) {
    StepNumbers mine = test::run_reference(world, reference, {layout}, micro);
    std::lock_guard const lock(mutex);
    seen.push_back(std::move(mine));
  });
  // Everybody acts on the same numbers.
  for (const StepNumbers& other : seen)
    CHECK((other.losses == seen.front().losses && other.norms == seen.front().norms));
  CHECK(test::deviations(reference, seen.front()) == std::vector<std::string>{});
  return true;
}

}  // namespace

TEST_CASE("every layout follows the references (E1, E4, E5, E6, E7, E9, E11, E12, U4)",
          "[layouts]") {
  int compared = 0;
  for (const char* name : test::kReferenceNames) {
    for (Layout layout : test::reference_layouts()) {
      for (std::int64_t micro : {1, 2}) {
        for (bool sequence_parallel : {false, true}) {
          if (sequence_parallel && layout.tp == 1) continue;  // a legal no-op, refused nowhere
          layout.sequence_parallel = sequence_parallel;
          compared += compare(name, layout, micro) ? 1 : 0;
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
  CHECK(compare("qwen2", {1, 8, 1, 1, 0}, 2));
  CHECK(compare("qwen2", {2, 8, 1, 1, 1, true}, 2));
  CHECK(compare("llama-gqa", {1, 1, 2, 1, 0}, 1));  // 3 layers over 2
  CHECK(compare("llama-tied", {1, 1, 4, 1, 0}, 2));
  CHECK(compare("llama-tied", {1, 1, 2, 2, 0}, 2));
  CHECK(compare("llama-tied", {2, 2, 2, 2, 1, true}, 1));
}

TEST_CASE(
    "recomputation changes no bit of losses and norms, on one rank and on several, with dropout",
    "[layouts]") {
  for (const char* name : test::kReferenceNames) {
    Reference const reference(name);
    SampleSource const samples = test::samples_of(reference);
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
