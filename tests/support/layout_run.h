// The reference runs on any layout and transport, and what of them deviates from the independent
// float64 values: one truth for threads and MPI.
#pragma once
#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "copus/comm/staged.h"
#include "copus/train/trainer.h"
#include "support/reference.h"

namespace copus::test {

// Relative; asked for by the issue, fp32 reaches 1e-6.
inline constexpr double kLoss = 2e-5, kNorm = 2e-4;

// The layouts every reference must agree on.
inline std::vector<Layout> reference_layouts() {
  return {{2, 1, 1, 1, 0}, {1, 2, 1, 1, 0}, {1, 1, 2, 1, 0}, {2, 2, 1, 1, 1}, {2, 1, 2, 1, 1},
          {1, 2, 2, 1, 0}, {2, 2, 2, 1, 1}, {4, 1, 1, 1, 1}, {8, 1, 1, 1, 1}, {1, 1, 2, 1, 1}};
}

// A way round seven layouts of up to four ranks, from (2, 2, 1) with ZeRO-1 back to it: every axis
// grows and shrinks, ranks fall idle and come back.
inline std::vector<Layout> ring_of_layouts() {
  return {{2, 2, 1, 1, 1}, {2, 1, 2, 1, 1}, {1, 2, 2, 1, 0, true}, {4, 1, 1, 1, 1},
          {1, 1, 1, 1, 0}, {1, 2, 1, 1, 1}, {2, 1, 1, 1, 0},       {2, 2, 1, 1, 1, true}};
}

struct StepNumbers {
  std::vector<double> losses, norms;
  double after = 0.0;  // the loss of the first 96 windows, or nearly
  std::vector<SwitchRecord> switches;
};

inline SampleSource samples_of(const Reference& reference) {
  return
      [&reference](std::int64_t index, std::span<std::int32_t> inputs,
                   std::span<std::int32_t> targets) { reference.sample(index, inputs, targets); };
}

// A rank's device.
using MakeBackend = std::function<std::unique_ptr<Backend>()>;
inline std::unique_ptr<Backend> one_thread() {
  return make_cpu_backend(1);
}

// The reference's eight steps, by every rank of `world`; step s runs in layouts[s], or in the last
// of them.
inline StepNumbers run_reference(Communicator& world, const Reference& reference,
                                 const std::vector<Layout>& layouts, std::int64_t micro,
                                 std::size_t kept_meshes = Trainer::kKeptMeshes,
                                 Precision precision = Precision::fp32,
                                 const MakeBackend& make = one_thread) {
  StepNumbers numbers;
  Config config = reference.config(micro);
  config.train.precision = precision;
  SampleSource const samples = samples_of(reference);
  auto const backend = make();
  auto const ranks = stage_through_host(world, *backend);
  Trainer trainer(config, *ranks, layouts.front(), micro, *backend, kept_meshes);
  trainer.read_weights(HfModel(reference.directory, config.model));
  for (std::size_t s = 0; s < reference.values["train"]["losses"].size(); ++s) {
    if (s > 0 && s < layouts.size()) {
      SwitchRequest request;
      request.layout = layouts[s];
      request.micro = micro;
      numbers.switches.push_back(trainer.switch_to(request));
    }
    StepRecord const record = trainer.step(samples, config.batch.sequences);
    numbers.losses.push_back(record.loss);
    numbers.norms.push_back(record.grad_norm);
  }
  trainer.state().counters.samples = 0;
  std::int64_t const share = trainer.layout().dp * micro;
  numbers.after = trainer.step(samples, 96 / share * share).loss;
  return numbers;
}

inline bool legal(const Reference& reference, const Layout& layout, std::int64_t micro) {
  Config const config = reference.config(micro);
  return illegal_reasons(config.model, layout, config.batch.sequences, micro).empty();
}

inline std::vector<std::string> deviations(const Reference& reference, const StepNumbers& numbers) {
  std::vector<std::string> found;
  nlohmann::json const& expected = reference.values["train"];
  auto const compare = [&](const std::string& what, double got, double right, double tolerance) {
    if (!(std::abs(got - right) < tolerance * std::abs(right)))
      found.push_back(fmt::format("{}: {:.9g}, reference {:.9g}", what, got, right));
  };
  for (std::size_t s = 0; s < numbers.losses.size(); ++s) {
    compare(fmt::format("loss of step {}", s + 1), numbers.losses[s], expected["losses"][s], kLoss);
    compare(fmt::format("norm of step {}", s + 1), numbers.norms[s], expected["grad_norms"][s],
            kNorm);
  }
  compare("loss afterwards", numbers.after, expected["loss_after"], kLoss);
  for (const SwitchRecord& record : numbers.switches) {
    if (!record.refused.empty()) found.push_back("refused: " + record.refused);
  }
  return found;
}

}  // namespace copus::test
