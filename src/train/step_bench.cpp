#include "copus/train/step_bench.h"

#include <algorithm>

#include "copus/backend/timed_backend.h"
#include "copus/parallel/flops.h"
#include "copus/train/metrics.h"
#include "copus/train/resolve.h"
#include "copus/train/trainer.h"

namespace copus {
namespace {

// Uniform tokens: every embedding row is as likely as any other.
SampleSource made_up_tokens(std::int64_t vocab) {
  return
      [vocab](std::int64_t index, std::span<std::int32_t> inputs, std::span<std::int32_t> targets) {
        RngStream const stream = stream_of({1, RngPurpose::test, 0, 0});
        std::uint64_t const first = static_cast<std::uint64_t>(index) * (inputs.size() + 1);
        auto const token = [&](std::uint64_t i) {
          return static_cast<std::int32_t>(random_bits(stream, first + i) %
                                           static_cast<std::uint64_t>(vocab));
        };
        for (std::size_t t = 0; t < inputs.size(); ++t) {
          inputs[t] = token(t);
          targets[t] = token(t + 1);
        }
      };
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

StepBench bench_step(const Config& config, Backend& backend, int steps, double peak_flops,
                     double bandwidth) {
  TimedBackend timed(backend);
  timed.pause();
  auto const world = make_single_communicator();
  Trainer trainer(config, *world, Layout{}, choose_micro(config, Layout{}), timed);
  trainer.draw_weights(config.train.seed);
  SampleSource const tokens = made_up_tokens(config.model.vocab);
  auto const run = [&](int count) {
    std::vector<double> seconds;
    for (int i = 0; i < count; ++i)
      seconds.push_back(trainer.step(tokens, config.batch.sequences).seconds);
    return seconds;
  };
  run(2);
  std::vector<double> const seconds = run(steps);
  // The parts come from steps of their own: waiting for each operation costs a GPU its overlap.
  timed.resume();
  std::vector<double> const timed_seconds = run(steps);

  StepBench result;
  result.step_seconds = median(seconds);
  result.fastest_seconds = *std::min_element(seconds.begin(), seconds.end());
  result.slowest_seconds = *std::max_element(seconds.begin(), seconds.end());
  result.tokens_per_second =
      static_cast<double>(config.batch.sequences * config.model.seq_len) / result.step_seconds;
  result.peak_flops = peak_flops;
  result.bandwidth = bandwidth;
  result.mfu = result.tokens_per_second * flops_per_token(config.model) / peak_flops;
  result.planned_bytes = trainer.memory().total();
  result.peak_memory_bytes = peak_memory_bytes();
  double total = 0.0, booked = 0.0;
  for (double s : timed_seconds) total += s;
  for (auto const& [name, totals] : timed.parts()) {
    bool const flops = totals.flops > 0.0;
    result.parts.push_back({name, totals.seconds / steps, totals.seconds / total,
                            (flops ? totals.flops : totals.bytes) / totals.seconds,
                            flops ? peak_flops : bandwidth, flops});
    booked += totals.seconds;
  }
  std::sort(result.parts.begin(), result.parts.end(),
            [](const StepPart& a, const StepPart& b) { return a.seconds > b.seconds; });
  result.parts.push_back(
      {"other", (total - booked) / steps, (total - booked) / total, 0.0, 0.0, false});
  return result;
}

}  // namespace copus
