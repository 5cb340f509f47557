#include "copus/parallel/schedule.h"

#include <fmt/format.h>

#include <algorithm>

#include "copus/core/error.h"

namespace copus {
namespace {

// Work between two exchanges.
using Slot = std::vector<Instruction>;

std::int64_t warmup_of(const Layout& layout, int pp_rank, std::int64_t micro_batches) {
  std::int64_t const pp = layout.pp, v = layout.virtual_stages, behind = pp - 1 - pp_rank;
  return std::min(micro_batches * v, v == 1 ? behind : 2 * behind + (v - 1) * pp);
}

// The k-th forward (or, mirrored, backward) of a rank: pp micro-batches through one chunk, the same
// ones through the next chunk, and so on.
Instruction work_at(const Layout& layout, Work work, std::int64_t k) {
  std::int64_t const pp = layout.pp, v = layout.virtual_stages;
  if (v == 1) return {work, k, 0, {}, {}};
  std::int64_t const chunk = k % (pp * v) / pp;
  return {work,
          k / (pp * v) * pp + k % pp,
          static_cast<int>(work == Work::forward ? chunk : v - 1 - chunk),
          {},
          {}};
}

// Warm-up forwards, one forward one backward, remaining backwards. With one chunk a rank must pass
// its forward on before its next backward can arrive, so each stands alone; with several the longer
// warm-up leaves room to exchange once a pair, which sends half as often.
std::vector<Slot> slots_of(const Layout& layout, int pp_rank, std::int64_t micro_batches) {
  std::int64_t const total = micro_batches * layout.virtual_stages;
  std::int64_t const warmup = warmup_of(layout, pp_rank, micro_batches);
  std::vector<Slot> slots;
  for (std::int64_t k = 0; k < warmup; ++k) slots.push_back({work_at(layout, Work::forward, k)});
  for (std::int64_t k = warmup; k < total; ++k) {
    Instruction const forward = work_at(layout, Work::forward, k);
    Instruction const backward = work_at(layout, Work::backward, k - warmup);
    if (layout.virtual_stages == 1) {
      slots.push_back({forward});
      slots.push_back({backward});
    } else {
      slots.push_back({forward, backward});
    }
  }
  for (std::int64_t k = total - warmup; k < total; ++k) {
    slots.push_back({work_at(layout, Work::backward, k)});
  }
  return slots;
}

// Adds the messages that bring `step` its input (incoming) or take its output away; none at the
// model's ends, and none where the next chunk is this rank's own.
void add_messages(const Layout& layout, int pp_rank, const Instruction& step, bool incoming,
                  std::vector<Message>& messages) {
  int const pp = layout.pp, stages = pp * layout.virtual_stages;
  bool const forward = step.work == Work::forward;
  int const stage = step.chunk * pp + pp_rank;
  int const other = forward == incoming ? stage - 1 : stage + 1;
  if (pp == 1 || other < 0 || other >= stages) return;
  messages.push_back({.traffic = forward ? Traffic::activation : Traffic::gradient,
                      .peer = other % pp,
                      .micro = step.micro,
                      .chunk = step.chunk});
}

}  // namespace

Schedule pipeline_schedule(const Layout& layout, int pp_rank, std::int64_t micro_batches) {
  std::int64_t const m = micro_batches, pp = layout.pp;
  if (layout.virtual_stages > 1 && m % pp != 0) {
    throw ConfigError(fmt::format(
        "{} micro-batches cannot be interleaved: parallel.virtual_stages {} needs a multiple of "
        "parallel.pp {}; nearest that fits: {}{}",
        m, layout.virtual_stages, pp, m > pp ? fmt::format("{} or ", m / pp * pp) : "",
        (m / pp + 1) * pp));
  }
  Schedule schedule;
  Slot before;
  auto const exchange = [&](const Slot& done, const Slot& next) {
    Instruction group;
    group.work = Work::exchange;
    for (const Instruction& step : done) add_messages(layout, pp_rank, step, false, group.sends);
    for (const Instruction& step : next) add_messages(layout, pp_rank, step, true, group.recvs);
    if (!group.sends.empty() || !group.recvs.empty()) schedule.push_back(std::move(group));
  };
  for (Slot& slot : slots_of(layout, pp_rank, m)) {
    exchange(before, slot);
    schedule.insert(schedule.end(), slot.begin(), slot.end());
    before = std::move(slot);
  }
  exchange(before, {});
  return schedule;
}

std::int64_t live_peak(const Layout& layout, int pp_rank, std::int64_t micro_batches) {
  return std::min(micro_batches * layout.virtual_stages,
                  warmup_of(layout, pp_rank, micro_batches) + 1);
}

}  // namespace copus
