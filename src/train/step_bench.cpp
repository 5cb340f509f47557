#include "copus/train/step_bench.h"

#include <algorithm>
#include <array>

#include "copus/backend/machine.h"
#include "copus/backend/timed_backend.h"
#include "copus/core/median.h"
#include "copus/parallel/activations.h"
#include "copus/parallel/flops.h"
#include "copus/train/metrics.h"
#include "copus/train/resolve.h"
#include "copus/train/trainer.h"
#include "train/made_up_tokens.h"

namespace copus {
namespace {

struct Limits {
  double flops = 0.0, bandwidth = 0.0;
};

// What this rank reaches while the layout's others measure too; nothing on an idle rank.
Limits limits_here(Communicator& world, const Layout& layout, Backend& backend,
                   Precision precision) {
  Limits limits;
  bool const active = world.rank() < layout.world();
  world.barrier();  // world: nobody has the machine for itself
  if (active) limits.flops = measured_peak_flops(backend, compute_type(precision));
  world.barrier();
  if (active) limits.bandwidth = measured_bandwidth(backend);
  return limits;
}

Limits sum_of(Communicator& world, const Limits& here) {
  std::array<double, 2> sums{here.flops, here.bandwidth};
  world.all_reduce(std::span<double>(sums), ReduceOp::sum);
  return {sums[0], sums[1]};
}

Spread median_of(const std::vector<StepRecord>& steps, Spread StepRecord::*what) {
  auto const over_steps = [&](double Spread::*which) {
    std::vector<double> values;
    for (const StepRecord& step : steps) values.push_back(step.*what.*which);
    return median(values);
  };
  return {over_steps(&Spread::min), over_steps(&Spread::median), over_steps(&Spread::max)};
}

std::vector<StepGroup> groups_of(const Mesh& mesh) {
  std::vector<StepGroup> groups;
  const Layout& layout = mesh.layout();
  if (layout.dp > 1) groups.push_back({"dp", layout.dp, mesh.dp_traffic()});
  if (layout.tp > 1) groups.push_back({"tp", layout.tp, mesh.tp_traffic()});
  if (layout.pp > 1) groups.push_back({"pp", layout.pp, mesh.pp_traffic()});
  return groups;
}

// A step's share of what has passed since `before`.
std::vector<StepGroup> per_step(const std::vector<StepGroup>& before,
                                const std::vector<StepGroup>& after, int steps) {
  std::vector<StepGroup> groups = after;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    GroupTraffic& traffic = groups[i].traffic;
    traffic.seconds = (traffic.seconds - before[i].traffic.seconds) / steps;
    traffic.bus_bytes = (traffic.bus_bytes - before[i].traffic.bus_bytes) / steps;
  }
  return groups;
}

std::vector<StepPart> parts_of(const TimedBackend& timed, const std::vector<StepGroup>& groups,
                               double total, int steps, const Limits& limits) {
  std::vector<StepPart> parts;
  double booked = 0.0;
  for (auto const& [name, totals] : timed.parts()) {
    bool const flops = totals.flops > 0.0;
    parts.push_back({name, totals.seconds / steps, totals.seconds / total,
                     (flops ? totals.flops : totals.bytes) / totals.seconds,
                     flops ? limits.flops : limits.bandwidth, flops});
    booked += totals.seconds;
  }
  // What dp's collectives take from a step is not their time: most of it runs under the backward.
  for (const StepGroup& group : groups) {
    if (group.name == "dp") continue;
    double const seconds = group.traffic.seconds;
    parts.push_back({group.name + " collectives", seconds, seconds * steps / total,
                     group.traffic.bus_bandwidth(), 0.0, false});
    booked += seconds * steps;
  }
  std::sort(parts.begin(), parts.end(),
            [](const StepPart& a, const StepPart& b) { return a.seconds > b.seconds; });
  parts.push_back({"other", (total - booked) / steps, (total - booked) / total, 0.0, 0.0, false});
  return parts;
}

}  // namespace

StepBench bench_step(const Config& config, Communicator& world, const Layout& layout,
                     Backend& backend, int steps) {
  Limits const here = limits_here(world, layout, backend, config.train.precision),
               all = sum_of(world, here);
  TimedBackend timed(backend);
  timed.pause();
  Trainer trainer(config, world, layout, choose_micro(config, layout), timed);
  trainer.draw_weights(config.train.seed);
  SampleSource const tokens = made_up_tokens(config.model.vocab);
  auto const run = [&](int count) {
    std::vector<StepRecord> records;
    for (int i = 0; i < count; ++i) records.push_back(trainer.step(tokens, config.batch.sequences));
    return records;
  };
  auto const groups_now = [&] {
    return trainer.active() ? groups_of(trainer.mesh()) : std::vector<StepGroup>{};
  };
  run(2);
  std::vector<StepGroup> const at_start = groups_now();
  std::vector<StepRecord> const records = run(steps);
  std::vector<StepGroup> const whole = groups_now();
  // The parts come from steps of their own: waiting for each operation costs a GPU its overlap.
  timed.resume();
  std::vector<StepRecord> const by_part = run(steps);

  StepBench result;
  std::vector<double> seconds;
  for (const StepRecord& record : records) seconds.push_back(record.seconds);
  result.micro = trainer.micro();
  result.step_seconds = median(seconds);
  result.fastest_seconds = *std::min_element(seconds.begin(), seconds.end());
  result.slowest_seconds = *std::max_element(seconds.begin(), seconds.end());
  result.tokens_per_second =
      static_cast<double>(config.batch.sequences * config.model.seq_len) / result.step_seconds;
  result.peak_flops = all.flops;
  result.bandwidth = all.bandwidth;
  result.mfu = result.tokens_per_second * flops_per_token(config.model) / all.flops;
  result.planned_bytes = trainer.memory().total();
  result.peak_memory_bytes = peak_memory_bytes();
  result.compute = median_of(records, &StepRecord::compute);
  result.communication = median_of(records, &StepRecord::communication);
  result.groups = per_step(at_start, whole, steps);
  double total = 0.0;
  for (const StepRecord& record : by_part) total += record.seconds;
  result.parts = parts_of(timed, per_step(whole, groups_now(), steps), total, steps, here);
  return result;
}

}  // namespace copus
