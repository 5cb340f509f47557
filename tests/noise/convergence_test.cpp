// With the learning rate at 0 the averages must come to the brute-force values of all windows. Too
// long for the unit tests.
#include <catch2/catch.hpp>
#include <mutex>

#include "support/layout_run.h"

using namespace copus;
using copus::test::Reference;

namespace {

constexpr int kSteps = 1500;

GnsReading average(const Reference& reference, const Layout& layout, std::int64_t micro) {
  GnsReading reading;
  // Batches of 8 of the windows in a new order every pass: a random subset without repetition has
  // |mean|^2 - S^2 / n + S^2 / 8 on average, and the brute-force signal is |mean|^2 - S^2 / n.
  SampleSource const shuffled = [&](std::int64_t index, std::span<std::int32_t> inputs,
                                    std::span<std::int32_t> targets) {
    auto const windows = static_cast<std::uint64_t>(reference.windows());
    auto const i = static_cast<std::uint64_t>(index);
    Permutation const order(windows, 77, i / windows);
    reference.sample(static_cast<std::int64_t>(order(i % windows)), inputs, targets);
  };
  run_ranks(layout.world(), [&](int rank, Communicator& world) {
    Config config = reference.config(micro);
    config.optimizer.lr = 0.0;
    config.adapt.mode = AdaptMode::log;
    config.gns.every_steps = 1;
    config.gns.half_life_tokens = std::int64_t{1} << 50;  // all steps weigh the same
    auto const backend = make_cpu_backend(1);
    Trainer trainer(config, world, layout, micro, *backend);
    trainer.read_weights(HfModel(reference.directory, config.model));
    for (int s = 0; s < kSteps; ++s) {
      StepRecord const record = trainer.step(shuffled, 8);
      if (rank == 0) reading = record.gns.value();
    }
  });
  return reading;
}

void check(const char* name) {
  Reference const reference(name);
  nlohmann::json const& noise = reference.values["noise"];
  for (std::int64_t micro : {1, 2}) {
    std::map<int, GnsReading> by_dp;
    for (const Layout& layout :
         {Layout{1, 1, 1}, Layout{2, 1, 1, 1, 1}, Layout{1, 2, 2}, Layout{2, 2, 1, 1, 1}}) {
      GnsReading const got = average(reference, layout, micro);
      CAPTURE(name, to_string(layout), micro);
      REQUIRE(got.state == GnsState::warm);
      CHECK(got.trace.value() == Approx(noise["trace"].get<double>()).epsilon(0.05));
      CHECK(got.critical_batch.value() ==
            Approx(noise["critical_batch"].get<double>()).epsilon(0.08));
      CHECK(!got.double_count);
      // The same dp and micro-batch see the same norms, whatever tp and pp do.
      auto const [first, is_new] = by_dp.try_emplace(layout.dp, got);
      if (!is_new) {
        CHECK(got.critical_batch.value() ==
              Approx(first->second.critical_batch.value()).epsilon(1e-3));
      }
    }
  }
}

}  // namespace

TEST_CASE("llama-gqa: critical batch and trace converge to brute force on four layouts") {
  check("llama-gqa");
}
TEST_CASE("llama-tied: critical batch and trace converge to brute force on four layouts") {
  check("llama-tied");
}
TEST_CASE("qwen2: critical batch and trace converge to brute force on four layouts") {
  check("qwen2");
}
TEST_CASE("gpt2: critical batch and trace converge to brute force on four layouts") {
  check("gpt2");
}
