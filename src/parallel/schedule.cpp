#include "copus/parallel/schedule.h"

#include <fmt/format.h>

#include <algorithm>

#include "copus/core/error.h"

namespace copus {
namespace {

// Work between two exchanges, where messages go between.
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

Schedule exchanging_between(const Layout& layout, int pp_rank, const std::vector<Slot>& slots) {
  Schedule schedule;
  Slot before;
  auto const exchange = [&](const Slot& done, const Slot& next) {
    Instruction group;
    group.work = Work::exchange;
    for (const Instruction& step : done) add_messages(layout, pp_rank, step, false, group.sends);
    for (const Instruction& step : next) add_messages(layout, pp_rank, step, true, group.recvs);
    if (!group.sends.empty() || !group.recvs.empty()) schedule.push_back(std::move(group));
  };
  for (const Slot& slot : slots) {
    exchange(before, slot);
    schedule.insert(schedule.end(), slot.begin(), slot.end());
    before = slot;
  }
  exchange(before, {});
  return schedule;
}

// Messages of one traffic that a rank sends and receives under its work.
class Lane {
 public:
  Lane(const Layout& layout, int pp_rank, const std::vector<Slot>& slots, Work work) {
    for (const Slot& slot : slots) {
      for (const Instruction& step : slot) {
        if (step.work == work) add_messages(layout, pp_rank, step, true, recvs_);
      }
    }
  }
  // The receive that has the buffer next.
  void start_receive(std::vector<Message>& recvs) {
    if (next_ < recvs_.size()) recvs.push_back(recvs_[next_++]);
  }
  void sent(const std::vector<Message>& sends) { under_way_ = sends; }
  void wait_sent(std::vector<Message>& sends) {
    sends.insert(sends.end(), under_way_.begin(), under_way_.end());
    under_way_.clear();
  }

 private:
  std::vector<Message> recvs_, under_way_;
  std::size_t next_ = 0;
};

// Around each forward and backward: a wait for its input, and for the buffer it writes; a start of
// the receive that gets the buffer where the input came in; and a start of what it has made.
Schedule messages_under(const Layout& layout, int pp_rank, const std::vector<Slot>& slots) {
  Schedule schedule;
  auto const add = [&](Work work, std::vector<Message> sends, std::vector<Message> recvs) {
    if (sends.empty() && recvs.empty()) return;
    schedule.push_back({work, 0, 0, std::move(sends), std::move(recvs)});
  };
  Lane activations(layout, pp_rank, slots, Work::forward);
  Lane gradients(layout, pp_rank, slots, Work::backward);
  std::vector<Message> first, last;
  activations.start_receive(first);
  gradients.start_receive(first);
  add(Work::start, {}, std::move(first));
  for (const Slot& slot : slots) {
    for (const Instruction& step : slot) {
      bool const forward = step.work == Work::forward;
      Lane& lane = forward ? activations : gradients;
      std::vector<Message> in, out, sent, next;
      add_messages(layout, pp_rank, step, true, in);
      add_messages(layout, pp_rank, step, false, out);
      // Every backward works where the last one's result lies, also one that sends nothing.
      if (!forward || !out.empty()) lane.wait_sent(sent);
      if (!in.empty()) lane.start_receive(next);
      add(Work::wait, std::move(sent), std::move(in));
      add(Work::start, {}, std::move(next));
      schedule.push_back(step);
      if (!out.empty()) lane.sent(out);
      add(Work::start, std::move(out), {});
    }
  }
  activations.wait_sent(last);
  gradients.wait_sent(last);
  add(Work::wait, std::move(last), {});
  return schedule;
}

}  // namespace

Messages messages_of(const Layout& layout, bool can_start) {
  return can_start && layout.virtual_stages > 1 ? Messages::under_work : Messages::between_work;
}

Schedule pipeline_schedule(const Layout& layout, int pp_rank, std::int64_t micro_batches,
                           Messages messages) {
  std::int64_t const m = micro_batches, pp = layout.pp;
  if (layout.virtual_stages > 1 && m % pp != 0) {
    throw ConfigError(fmt::format(
        "{} micro-batches cannot be interleaved: parallel.virtual_stages {} needs a multiple of "
        "parallel.pp {}; nearest that fits: {}{}",
        m, layout.virtual_stages, pp, m > pp ? fmt::format("{} or ", m / pp * pp) : "",
        (m / pp + 1) * pp));
  }
  std::vector<Slot> const slots = slots_of(layout, pp_rank, m);
  return messages == Messages::under_work ? messages_under(layout, pp_rank, slots)
                                          : exchanging_between(layout, pp_rank, slots);
}

std::int64_t live_peak(const Layout& layout, int pp_rank, std::int64_t micro_batches) {
  return std::min(micro_batches * layout.virtual_stages,
                  warmup_of(layout, pp_rank, micro_batches) + 1);
}

}  // namespace copus
