#include "copus/train/step_bench.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>

#include "copus/backend/machine.h"
#include "copus/backend/timed_backend.h"
#include "copus/core/error.h"
#include "copus/core/median.h"
#include "copus/parallel/activations.h"
#include "copus/parallel/flops.h"
#include "copus/plan/norm_line.h"
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
  return {over_steps(&Spread::min), over_steps(&Spread::median), over_steps(&Spread::max), -1};
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

std::vector<StepPart> parts_of(const std::map<std::string, PartTotals>& totals_of_parts,
                               const std::vector<StepGroup>& groups, double total, int steps,
                               const Limits& limits) {
  std::vector<StepPart> parts;
  double booked = 0.0;
  for (auto const& [name, totals] : totals_of_parts) {
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

using Parts = std::map<std::string, PartTotals>;

void add_difference(Parts& sum, const Parts& before, const Parts& after) {
  for (auto const& [name, totals] : after) {
    auto const found = before.find(name);
    PartTotals const from = found == before.end() ? PartTotals{} : found->second;
    PartTotals& to = sum[name];
    to.seconds += totals.seconds - from.seconds;
    to.flops += totals.flops - from.flops;
    to.bytes += totals.bytes - from.bytes;
    to.calls += totals.calls - from.calls;
  }
}

double added_seconds(const Parts& without, const Parts& with) {
  double seconds = 0.0;
  for (auto const& [name, totals] : with) {
    auto const found = without.find(name);
    PartTotals const from = found == without.end() ? PartTotals{} : found->second;
    if (totals.calls > from.calls) seconds += totals.seconds - from.seconds;
  }
  return seconds;
}

std::vector<double> seconds_of(const std::vector<StepRecord>& steps) {
  std::vector<double> seconds;
  for (const StepRecord& step : steps) seconds.push_back(step.seconds);
  return seconds;
}

// Steps of one kind, and what their operations took while those were timed.
struct Steps {
  std::vector<StepRecord> records;
  std::vector<double> issue_seconds;
  Parts parts;
};

double median_ratio(const Steps& with, const Steps& without) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < with.records.size(); ++i)
    ratios.push_back(with.records[i].seconds / without.records[i].seconds);
  return median(ratios);
}

void check_noise_scale(const Config& config, const Layout& layout, std::int64_t micro) {
  if (has_estimate(layout.dp, config.batch.sequences / (layout.dp * micro))) return;
  throw ConfigError(fmt::format(
      "the noise scale of a batch of {} cannot be measured: it is one micro-batch of {} on one "
      "data-parallel rank; take smaller micro-batches, a larger batch or more dp",
      config.batch.sequences, micro));
}

}  // namespace

StepBench bench_step(const Config& asked, Communicator& world, const Layout& layout,
                     Backend& backend, int steps, std::optional<double> listed_peak) {
  Config config = asked;
  std::int64_t const micro = choose_micro(config, layout);
  bool const pairs = measures_noise_scale(config);
  if (pairs) check_noise_scale(config, layout, micro);
  config.gns.every_steps = 2;  // the even steps
  Limits const here = limits_here(world, layout, backend, config.train.precision),
               all = sum_of(world, here);
  TimedBackend timed(backend);
  timed.pause();
  Trainer trainer(config, world, layout, micro, timed);
  trainer.draw_weights(config.train.seed);
  SampleSource const tokens = made_up_tokens(config.model.vocab);
  auto const step_into = [&](Steps& steps_of_kind) {
    Parts const before = timed.parts();
    double const waited = timed.waited_seconds();
    steps_of_kind.records.push_back(trainer.step(tokens, config.batch.sequences));
    steps_of_kind.issue_seconds.push_back(steps_of_kind.records.back().seconds -
                                          (timed.waited_seconds() - waited));
    add_difference(steps_of_kind.parts, before, timed.parts());
  };
  auto const run = [&](int count, Steps& plain, Steps& measuring) {
    for (int i = 0; i < count; ++i) {
      step_into(plain);
      if (pairs) step_into(measuring);
    }
  };
  auto const groups_now = [&] {
    return trainer.active() ? groups_of(trainer.mesh()) : std::vector<StepGroup>{};
  };
  int const all_steps = pairs ? 2 * steps : steps;
  Steps warm_up, plain, measuring, plain_by_part, measuring_by_part;
  step_into(warm_up);
  step_into(warm_up);
  std::vector<StepGroup> const at_start = groups_now();
  run(steps, plain, measuring);
  std::vector<StepGroup> const whole = groups_now();
  // The parts come from steps of their own: waiting for each operation costs a GPU its overlap.
  timed.resume();
  run(steps, plain_by_part, measuring_by_part);

  StepBench result;
  std::vector<double> const seconds = seconds_of(plain.records);
  result.micro = micro;
  result.step_seconds = median(seconds);
  result.fastest_seconds = *std::min_element(seconds.begin(), seconds.end());
  result.slowest_seconds = *std::max_element(seconds.begin(), seconds.end());
  if (!backend.on_host() && layout.world() == 1) result.issue_seconds = median(plain.issue_seconds);
  result.tokens_per_second =
      static_cast<double>(config.batch.sequences * config.model.seq_len) / result.step_seconds;
  result.measured_flops = all.flops;
  result.peak_flops = listed_peak ? *listed_peak * layout.world() : all.flops;
  result.bandwidth = all.bandwidth;
  result.mfu = result.tokens_per_second * flops_per_token(config.model) / result.peak_flops;
  result.planned_bytes = trainer.memory().total();
  result.peak_memory_bytes = peak_memory_bytes();
  result.compute = median_of(plain.records, &StepRecord::compute);
  result.communication = median_of(plain.records, &StepRecord::communication);
  result.groups = per_step(at_start, whole, all_steps);
  double total = 0.0;
  for (double const taken : seconds_of(plain_by_part.records)) total += taken;
  result.parts =
      parts_of(plain_by_part.parts, per_step(whole, groups_now(), all_steps), total, steps, here);
  if (pairs) {
    result.noise_scale =
        NoiseScaleCost{median(seconds_of(measuring.records)), median_ratio(measuring, plain),
                       added_seconds(plain_by_part.parts, measuring_by_part.parts) / steps};
  }
  return result;
}

}  // namespace copus
