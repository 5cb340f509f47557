#include "copus/train/switch_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "copus/comm/comm_bench.h"
#include "copus/core/median.h"
#include "copus/train/resolve.h"
#include "copus/train/trainer.h"
#include "train/made_up_tokens.h"

namespace copus {
namespace {

// The rounds of one leg.
struct LegTimes {
  std::vector<double> step, seconds[kSwitchPhases], total;
};

// One switch as its slowest rank has seen it.
SwitchRecord slowest(Communicator& world, SwitchRecord record) {
  std::vector<double> most(record.seconds, record.seconds + kSwitchPhases);
  most.push_back(record.total_seconds);
  most.push_back(static_cast<double>(record.peak_bytes));
  most.push_back(record.in_place ? 0.0 : 1.0);
  world.all_reduce(std::span<double>(most), ReduceOp::max);
  std::copy_n(most.begin(), kSwitchPhases, record.seconds);
  record.total_seconds = most[kSwitchPhases];
  record.peak_bytes = static_cast<std::int64_t>(most[kSwitchPhases + 1]);
  record.in_place = most[kSwitchPhases + 2] == 0.0;
  return record;
}

double exchange_bandwidth(Communicator& world, Backend& backend) {
  constexpr std::int64_t kLarge = std::int64_t{64} << 20;
  constexpr int kTimes = 3;
  CommRate const rate = measure_comm(world, backend, CommOperation::exchange, kLarge, kTimes);
  return rate.bus_bandwidth() * world.size();
}

void add_round(SwitchLeg& leg, LegTimes& times, const SwitchRecord& record) {
  for (int i = 0; i < kSwitchPhases; ++i) times.seconds[i].push_back(record.seconds[i]);
  times.total.push_back(record.total_seconds);
  leg.bytes_moved = record.bytes_moved;
  leg.bytes_local = record.bytes_local;
  leg.peak_bytes = std::max(leg.peak_bytes, record.peak_bytes);
  leg.in_place = leg.in_place && record.in_place;
}

void take_medians(std::vector<SwitchLeg>& legs, const std::vector<LegTimes>& times) {
  for (std::size_t i = 0; i < legs.size(); ++i) {
    for (int p = 0; p < kSwitchPhases; ++p) legs[i].seconds[p] = median(times[i].seconds[p]);
    legs[i].total_seconds = median(times[i].total);
    legs[i].step_before = median(times[i].step);
    legs[i].step_after = median(times[(i + 1) % legs.size()].step);
  }
}

double rate_of(std::int64_t bytes, double seconds) {
  return seconds > 0.0 ? static_cast<double>(bytes) / seconds : 0.0;
}

}  // namespace

double SwitchLeg::moved_rate() const {
  return rate_of(bytes_moved, seconds[static_cast<int>(SwitchPhase::exchange)]);
}
double SwitchLeg::copied_rate() const {
  return rate_of(bytes_moved + bytes_local, seconds[static_cast<int>(SwitchPhase::exchange)]);
}

SwitchBench bench_switch(const Config& config, Communicator& world, const std::vector<Layout>& ring,
                         Backend& backend, int rounds, std::int64_t free_bytes) {
  SwitchBench bench;
  for (std::size_t i = 0; i < ring.size(); ++i) {
    SwitchLeg leg;
    leg.from = ring[i], leg.to = ring[(i + 1) % ring.size()];
    leg.micro_from = choose_micro(config, leg.from), leg.micro_to = choose_micro(config, leg.to);
    bench.legs.push_back(leg);
  }
  Trainer trainer(config, world, ring.front(), bench.legs.front().micro_from, backend);
  trainer.draw_weights(config.train.seed);
  SampleSource const tokens = made_up_tokens(config.model.vocab);
  std::vector<LegTimes> times(bench.legs.size());
  std::vector<double> bandwidths;  // in every round: whoever else uses the machine slows both
  for (int round = -1; round < rounds; ++round) {
    bandwidths.push_back(exchange_bandwidth(world, backend));
    for (std::size_t i = 0; i < bench.legs.size(); ++i) {
      SwitchLeg& leg = bench.legs[i];
      double const step = trainer.step(tokens, config.batch.sequences).seconds;
      SwitchRecord const record =
          slowest(world, trainer.switch_to({leg.to, leg.micro_to, free_bytes, {}}));
      if (!record.refused.empty()) {
        throw std::runtime_error(fmt::format("from {} to {}: {}", to_string(leg.from),
                                             to_string(leg.to), record.refused));
      }
      if (round < 0) continue;
      times[i].step.push_back(step);
      add_round(leg, times[i], record);
    }
  }
  take_medians(bench.legs, times);
  bench.exchange_bandwidth = median(bandwidths);
  return bench;
}

}  // namespace copus
