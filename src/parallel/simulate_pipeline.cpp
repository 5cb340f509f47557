#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "copus/core/error.h"
#include "copus/parallel/schedule.h"

namespace copus {
namespace {

struct Posted {
  Message message;
  double when = 0.0;
};

// Messages from one rank to another that one side has posted and the other has not.
struct Channel {
  std::deque<Posted> sends, recvs;
};

struct RankClock {
  std::size_t next = 0;  // instruction
  double now = 0.0;
  std::optional<std::size_t> waiting;  // messages of the exchange at `next` still unmatched
  std::int64_t live = 0;
  std::set<std::tuple<Traffic, std::int64_t, int>> arrived;  // inputs, by micro-batch and chunk
};

class Simulation {
 public:
  Simulation(const Layout& layout, const std::vector<Schedule>& schedules,
             const PipelineTimes& times)
      : layout_(layout), schedules_(schedules), times_(times), ranks_(schedules.size()) {
    run_.busy.resize(schedules.size());
    run_.live_peak.resize(schedules.size());
  }

  PipelineRun run() {
    // Times follow from the lists alone, whatever order the ranks are visited in.
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < layout_.pp; ++rank) {
        while (step(rank)) moved = true;
      }
    }
    for (int rank = 0; rank < layout_.pp; ++rank) {
      run_.seconds = std::max(run_.seconds, at(rank).now);
      if (at(rank).next < list(rank).size()) run_.stuck += describe(rank);
    }
    return run_;
  }

 private:
  RankClock& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  const Schedule& list(int rank) const { return schedules_[static_cast<std::size_t>(rank)]; }
  int stage_of(int rank, int chunk) const { return chunk * layout_.pp + rank; }

  // True when the rank got past an instruction.
  bool step(int rank) {
    RankClock& clock = at(rank);
    if (clock.next == list(rank).size()) return false;
    const Instruction& instruction = list(rank)[clock.next];
    if (instruction.work == Work::exchange) {
      if (!clock.waiting) post(rank, instruction);
      if (*clock.waiting > 0) return false;
      clock.waiting.reset();
      clock.now = std::max(clock.now, done_[static_cast<std::size_t>(rank)]);
      for (const Message& recv : instruction.recvs) {
        clock.arrived.insert({recv.traffic, recv.micro, recv.chunk});
      }
    } else {
      compute(rank, instruction);
    }
    ++clock.next;
    return true;
  }

  void compute(int rank, const Instruction& work) {
    RankClock& clock = at(rank);
    bool const forward = work.work == Work::forward;
    int const stage = stage_of(rank, work.chunk), stages = layout_.pp * layout_.virtual_stages;
    bool const from_peer = layout_.pp > 1 && (forward ? stage > 0 : stage < stages - 1);
    Traffic const traffic = forward ? Traffic::activation : Traffic::gradient;
    COPUS_CHECK(!from_peer || clock.arrived.erase({traffic, work.micro, work.chunk}) == 1,
                "a stage computes before its input has arrived");
    auto const index = static_cast<std::size_t>(rank);
    double const seconds =
        (forward ? times_.forward : times_.backward)[static_cast<std::size_t>(stage)];
    clock.now += seconds;
    run_.busy[index] += seconds;
    clock.live += forward ? 1 : -1;
    run_.live_peak[index] = std::max(run_.live_peak[index], clock.live);
  }

  void post(int rank, const Instruction& exchange) {
    RankClock& clock = at(rank);
    clock.waiting = exchange.sends.size() + exchange.recvs.size();
    for (const Message& send : exchange.sends) {
      channels_[{rank, send.peer}].sends.push_back({send, clock.now});
      match(rank, send.peer);
    }
    for (const Message& recv : exchange.recvs) {
      channels_[{recv.peer, rank}].recvs.push_back({recv, clock.now});
      match(recv.peer, rank);
    }
  }

  void match(int from, int to) {
    Channel& channel = channels_[{from, to}];
    while (!channel.sends.empty() && !channel.recvs.empty()) {
      auto const [send, sent] = channel.sends.front();
      auto const [recv, posted] = channel.recvs.front();
      channel.sends.pop_front();
      channel.recvs.pop_front();
      int const hop = send.traffic == Traffic::activation ? 1 : -1;
      COPUS_CHECK(send.traffic == recv.traffic && send.micro == recv.micro &&
                      stage_of(from, send.chunk) + hop == stage_of(to, recv.chunk),
                  "a message meets another one's counterpart");
      double const over = std::max(sent, posted) + times_.message;
      for (int rank : {from, to}) {
        --*at(rank).waiting;
        double& done = done_[static_cast<std::size_t>(rank)];
        done = std::max(done, over);
      }
    }
  }

  std::string describe(int rank) {
    const Instruction& exchange = list(rank)[at(rank).next];
    std::string text =
        fmt::format("pipeline rank {} waits at instruction {} for", rank, at(rank).next);
    for (const Message& m : exchange.sends) text += fmt::format(" a receive by {}", m.peer);
    for (const Message& m : exchange.recvs) text += fmt::format(" a send by {}", m.peer);
    return text + "; ";
  }

  const Layout& layout_;
  const std::vector<Schedule>& schedules_;
  const PipelineTimes& times_;
  std::vector<RankClock> ranks_;
  std::vector<double> done_ = std::vector<double>(ranks_.size());  // last message's end, by rank
  std::map<std::pair<int, int>, Channel> channels_;                // by (from, to)
  PipelineRun run_;
};

}  // namespace

double PipelineRun::bubble_seconds() const {
  return seconds - *std::max_element(busy.begin(), busy.end());
}

PipelineRun simulate_pipeline(const Layout& layout, const std::vector<Schedule>& schedules,
                              const PipelineTimes& times) {
  auto const stages = static_cast<std::size_t>(layout.pp * layout.virtual_stages);
  COPUS_CHECK(schedules.size() == static_cast<std::size_t>(layout.pp), "one list a pipeline rank");
  COPUS_CHECK(times.forward.size() == stages && times.backward.size() == stages,
              "one time a chunk of the model");
  return Simulation(layout, schedules, times).run();
}

}  // namespace copus
