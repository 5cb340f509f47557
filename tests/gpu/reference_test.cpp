// Training on the CUDA backend against values computed elsewhere in float64, and against the CPU.
#include <cmath>
#include <filesystem>

#include "copus/state/checkpoint.h"
#include "copus/train/trainer.h"
#include "gpu/gpu_support.h"
#include "support/reference.h"
#include "support/single_rank.h"

using namespace copus;
using copus::test::Reference;

namespace {

// Four times the CPU's bounds (tests/unit/train/reference_test.cpp). There a sum of n products runs
// in 16 lanes, so a rounding error grows like eps sqrt(n / 16); a GPU's product may be one chain,
// eps sqrt(n): a factor of sqrt(16).
constexpr double kEvalLoss = 4e-6, kStepLoss = 2e-5, kStepNorm = 2e-4;

double relative(double got, double expected) {
  return std::abs(got - expected) / std::abs(expected);
}

SampleSource source_of(const Reference& reference) {
  return
      [&reference](std::int64_t index, std::span<std::int32_t> inputs,
                   std::span<std::int32_t> targets) { reference.sample(index, inputs, targets); };
}

std::vector<float> flat(Backend& backend, const TensorView& view) {
  std::vector<float> host(static_cast<std::size_t>(view.numel()));
  backend.download(host.data(), view);
  return host;
}

}  // namespace

TEST_CASE("the loss and gradient norm on CUDA agree with float64 for every reference model",
          "[gpu][reference]") {
  auto const backend = test::gpu_or_skip();
  if (backend == nullptr) return;
  for (const char* name : test::kReferenceNames) {
    for (std::int64_t const micro : {1, 8, 32}) {
      CAPTURE(name, micro);
      Reference const reference(name);
      Config const config = reference.config(micro);
      test::SingleRank trainer_rank;
      Trainer trainer(config, *trainer_rank.world, Layout{}, micro, *backend);
      trainer.read_weights(HfModel(reference.directory, config.model));
      StepRecord const record = trainer.step(source_of(reference), reference.windows());
      CHECK(relative(record.loss, reference.values["loss"]) < kEvalLoss);
      CHECK(relative(record.grad_norm, reference.values["grad_norm"]) < kStepNorm);
    }
  }
}

TEST_CASE("eight AdamW steps on CUDA follow the reference", "[gpu][reference]") {
  auto const backend = test::gpu_or_skip();
  if (backend == nullptr) return;
  for (const char* name : test::kReferenceNames) {
    for (std::int64_t const micro : {2, 8}) {
      CAPTURE(name, micro);
      Reference const reference(name);
      nlohmann::json const& expected = reference.values["train"];
      Config const config = reference.config(micro);
      test::SingleRank trainer_rank;
      Trainer trainer(config, *trainer_rank.world, Layout{}, micro, *backend);
      trainer.read_weights(HfModel(reference.directory, config.model));
      for (std::size_t s = 0; s < expected["losses"].size(); ++s) {
        StepRecord const record = trainer.step(source_of(reference), config.batch.sequences);
        CAPTURE(s);
        CHECK(relative(record.loss, expected["losses"][s]) < kStepLoss);
        CHECK(relative(record.grad_norm, expected["grad_norms"][s]) < kStepNorm);
      }
    }
  }
}

TEST_CASE("weights drawn on CUDA have the fingerprint of those drawn on the CPU", "[gpu]") {
  auto const gpu = test::gpu_or_skip();
  if (gpu == nullptr) return;
  auto const cpu = make_cpu_backend(2);
  for (const char* name : test::kReferenceNames) {
    CAPTURE(name);
    Config const config = Reference(name).config(2);
    test::SingleRank here_rank;
    Trainer here(config, *here_rank.world, Layout{}, 2, *cpu),
        there(config, *here_rank.world, Layout{}, 2, *gpu);
    here.draw_weights(11);
    there.draw_weights(11);
    CHECK(here.weight_hash() == there.weight_hash());
  }
}

TEST_CASE("two runs of the same steps on CUDA end in the same bits", "[gpu]") {
  auto const gpu = test::gpu_or_skip();
  if (gpu == nullptr) return;
  Reference const reference("llama-gqa");
  Config const config = reference.config(4);
  std::vector<std::uint64_t> hashes;
  for (int run = 0; run < 2; ++run) {
    test::SingleRank trainer_rank;
    Trainer trainer(config, *trainer_rank.world, Layout{}, 4, *gpu);
    trainer.draw_weights(3);
    for (int s = 0; s < 3; ++s) trainer.step(source_of(reference), config.batch.sequences);
    hashes.push_back(trainer.weight_hash());
  }
  CHECK(hashes[0] == hashes[1]);
}

TEST_CASE("a checkpoint written from CUDA is read into CUDA bit for bit", "[gpu]") {
  auto const gpu = test::gpu_or_skip();
  if (gpu == nullptr) return;
  Reference const reference("gpt2");
  Config const config = reference.config(4);
  auto const run = std::filesystem::temp_directory_path() / "copus-gpu-checkpoint";
  std::filesystem::remove_all(run);
  test::SingleRank written_rank;
  Trainer written(config, *written_rank.world, Layout{}, 4, *gpu),
      read(config, *written_rank.world, Layout{}, 4, *gpu);
  written.draw_weights(5);
  written.step(source_of(reference), config.batch.sequences);
  SavedCheckpoint const saved = save_checkpoint(
      run, {config.model, written.table(), written.flat()}, written.state().counters,
      backend_reader(*gpu, written.state()), {"bytes", 256}, 1);
  Counters const counters =
      load_train_state(saved.directory, {config.model, read.table(), read.flat()},
                       backend_writer(*gpu, read.state()));
  CHECK(counters == written.state().counters);
  CHECK(flat(*gpu, read.state().master) == flat(*gpu, written.state().master));
  CHECK(flat(*gpu, read.state().m) == flat(*gpu, written.state().m));
  CHECK(flat(*gpu, read.state().v) == flat(*gpu, written.state().v));
  std::filesystem::remove_all(run);
}
