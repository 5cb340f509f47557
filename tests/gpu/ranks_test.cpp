// Several ranks as threads on one GPU, their tensors staged through the host: the references at
// other layouts than (1, 1, 1), switches, and the noise scale against the CPU's.
#include <cmath>
#include <mutex>

#include "gpu/gpu_support.h"
#include "support/bf16_bounds.h"

using namespace copus;
using copus::test::Reference;
using copus::test::StepNumbers;

namespace {

std::unique_ptr<Backend> gpu() {
  return make_cuda_backend(0);
}

StepNumbers run(const Reference& reference, const std::vector<Layout>& layouts, std::int64_t micro,
                Precision precision = Precision::fp32, const test::MakeBackend& make = gpu) {
  int ranks = 1;
  for (const Layout& layout : layouts) ranks = std::max(ranks, layout.world());
  StepNumbers numbers;
  run_ranks(ranks, [&](int rank, Communicator& world) {
    StepNumbers mine = test::run_reference(world, reference, layouts, micro, Trainer::kKeptMeshes,
                                           precision, make);
    if (rank == 0) numbers = std::move(mine);
  });
  return numbers;
}

}  // namespace

TEST_CASE("4 and 8 ranks on one GPU follow the references", "[gpu][ranks]") {
  if (test::gpu_or_skip() == nullptr) return;
  for (const char* name : test::kReferenceNames) {
    Reference const reference(name);
    for (const Layout& layout : std::vector<Layout>{{4, 1, 1, 1, 1},
                                                    {2, 2, 1, 1, 1, true},
                                                    {1, 2, 2, 1, 0},
                                                    {2, 1, 2, 1, 1},
                                                    {2, 2, 2, 1, 1, true},
                                                    {8, 1, 1, 1, 1}}) {
      if (!test::legal(reference, layout, 1)) continue;
      CAPTURE(name, to_string(layout), layout.sequence_parallel);
      CHECK(test::deviations(reference, run(reference, {layout}, 1)) == std::vector<std::string>{});
    }
  }
}

TEST_CASE("a ring of switches on one GPU follows the references", "[gpu][ranks]") {
  if (test::gpu_or_skip() == nullptr) return;
  for (const char* name : test::kReferenceNames) {
    Reference const reference(name);
    CAPTURE(name);
    StepNumbers const numbers = run(reference, test::ring_of_layouts(), 1);
    CHECK(numbers.switches.size() == 7);
    CHECK(test::deviations(reference, numbers) == std::vector<std::string>{});
  }
}

TEST_CASE("bf16 on one GPU follows fp32 on the CPU, on one rank and on several", "[gpu][ranks]") {
  if (test::gpu_or_skip() == nullptr) return;
  for (const char* name : test::kReferenceNames) {
    Reference const reference(name);
    ModelConfig const model = reference.config(1).model;
    StepNumbers const full = run(reference, {Layout{}}, 1, Precision::fp32, test::one_thread);
    for (const Layout& layout : std::vector<Layout>{{}, {2, 2, 1, 1, 1, true}, {2, 1, 2, 1, 1}}) {
      if (!test::legal(reference, layout, 1)) continue;
      CAPTURE(name, to_string(layout));
      StepNumbers const half = run(reference, {layout}, 1, Precision::bf16);
      CHECK(test::bf16_deviation(model, half, full, 1.0) == "");
      CHECK(half.losses != full.losses);  // it is not fp32 under another name
    }
    StepNumbers const ring = run(reference, test::ring_of_layouts(), 1, Precision::bf16);
    for (const SwitchRecord& record : ring.switches) CHECK(record.refused == "");
    CHECK(test::bf16_deviation(model, ring, full, 1.0) == "");
  }
}

TEST_CASE("the noise scale's norms on one GPU are the CPU's within rounding", "[gpu][ranks]") {
  if (test::gpu_or_skip() == nullptr) return;
  Reference const reference("llama-tied");
  Config config = reference.config(1);
  config.adapt.mode = AdaptMode::log;
  config.gns.every_steps = 1;
  std::vector<GnsReading> readings;
  for (const test::MakeBackend& make :
       {test::MakeBackend(gpu), test::MakeBackend(test::one_thread)}) {
    run_ranks(4, [&](int rank, Communicator& world) {
      auto const backend = make();
      auto const ranks = stage_through_host(world, *backend);
      Trainer trainer(config, *ranks, {2, 2, 1, 1, 1, true}, 1, *backend);
      trainer.read_weights(HfModel(reference.directory, config.model));
      GnsReading const reading = trainer.step(test::samples_of(reference), 8).gns.value();
      if (rank == 0) readings.push_back(reading);
    });
  }
  // Differences of norms of which each is right to the steps' own 2e-4.
  double const trace = readings[1].trace_step.value(), signal = readings[1].signal_step.value();
  double const scale = std::abs(trace) + std::abs(signal);
  CHECK(std::abs(readings[0].trace_step.value() - trace) < 4e-4 * scale);
  CHECK(std::abs(readings[0].signal_step.value() - signal) < 4e-4 * scale);
}
