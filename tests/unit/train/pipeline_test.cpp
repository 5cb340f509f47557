// Messages between stages under compute: no number depends on when they move, and a rank that fails
// while some are under way frees its peers.
#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

#include "copus/core/error.h"
#include "support/layout_run.h"
#include "support/wrapped_communicator.h"

using namespace copus;
using copus::test::Reference;
using copus::test::Wrapping;

namespace {

struct Numbers {
  std::vector<double> losses_and_norms;
  std::uint64_t weights = 0;
  bool operator==(const Numbers&) const = default;
};

// Three steps by this rank.
Numbers steps_of(Communicator& world, const Reference& reference, const Config& config,
                 const Layout& layout) {
  SampleSource const samples = test::samples_of(reference);
  auto const backend = make_cpu_backend(1);
  Trainer trainer(config, world, layout, 1, *backend);
  trainer.read_weights(HfModel(reference.directory, config.model));
  Numbers numbers;
  for (int s = 0; s < 3; ++s) {
    StepRecord const record = trainer.step(samples, 8);
    numbers.losses_and_norms.insert(numbers.losses_and_norms.end(),
                                    {record.loss, record.grad_norm});
  }
  numbers.weights = trainer.weight_hash();
  return numbers;
}

Numbers steps(const Reference& reference, const Config& config, const Layout& layout,
              const Wrapping& wrapping) {
  Numbers numbers;
  run_ranks(layout.world(), [&](int rank, Communicator& ranks) {
    test::WrappedCommunicator world(ranks, wrapping);
    Numbers mine = steps_of(world, reference, config, layout);
    if (rank == 0) numbers = std::move(mine);
  });
  return numbers;
}

// dp, tp, pp, virtual stages: deep, interleaved, and beside the other axes.
const std::vector<Layout> kPipelines{{1, 1, 2, 1, 0},       {1, 1, 4, 1, 0}, {1, 1, 2, 2, 0},
                                     {2, 1, 2, 1, 1},       {2, 1, 2, 2, 1}, {1, 2, 2, 1, 0, true},
                                     {2, 2, 2, 2, 1, true}, {2, 2, 2, 2, 0}};

}  // namespace

TEST_CASE("no bit depends on whether messages move under the work or between it", "[layouts]") {
  Reference const reference("llama-tied");
  for (Layout const& layout : kPipelines) {
    for (bool const everything : {false, true}) {
      Config config = reference.config(1);
      if (everything) {
        config.model.dropout = 0.1;
        config.parallel.recompute = Recompute::full;
        config.adapt.mode = AdaptMode::log;  // measures the noise scale
        config.gns.every_steps = 1;
      }
      std::atomic<int> started{0};
      Wrapping between, under;
      between.can_start = false;
      under.on_start = [&](std::int64_t) { ++started; };
      CAPTURE(to_string(layout), layout.virtual_stages, everything);
      Numbers const expected = steps(reference, config, layout, between);
      CHECK(started == 0);
      CHECK(steps(reference, config, layout, under) == expected);
      CHECK((started > 0) == (layout.virtual_stages > 1));  // the others exchange between the work
      // Neither does one depend on which rank is behind.
      Wrapping jumpy;
      jumpy.on_start = [](std::int64_t number) {
        for (std::int64_t i = 0; i < number * 7 % 5 * 100; ++i) std::this_thread::yield();
      };
      CHECK(steps(reference, config, layout, jumpy) == expected);
    }
  }
}

TEST_CASE("a rank that fails with messages under way frees its peers, and the cause is told",
          "[layouts]") {
  Reference const reference("llama-tied");
  Config const config = reference.config(1);
  for (Layout const& layout : kPipelines) {
    if (layout.virtual_stages == 1) continue;  // starts none
    for (std::int64_t const at : {0, 1, 2, 5, 8}) {
      for (int const failing : {0, layout.world() - 1}) {
        std::atomic<int> freed{0};
        auto const body = [&](int rank, Communicator& ranks) {
          Wrapping wrapping;
          wrapping.on_start = [&](std::int64_t number) {
            if (rank == failing && number == at) throw IoError("the disk is gone");
          };
          test::WrappedCommunicator world(ranks, wrapping);
          try {
            steps_of(world, reference, config, layout);
          } catch (const CommError&) {
            ++freed;
            throw;
          }
        };
        CAPTURE(to_string(layout), layout.virtual_stages, at, failing);
        CHECK_THROWS_WITH(run_ranks(layout.world(), body), "the disk is gone");
        CHECK(freed == layout.world() - 1);
      }
    }
  }
}
