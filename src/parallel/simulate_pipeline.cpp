#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
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

// What matches in order: from, to, and of messages that are started, their traffic.
using Lane = std::tuple<int, int, bool, Traffic>;

// A message of one rank: outgoing or not, and which.
using Side = std::tuple<bool, Traffic, std::int64_t, int>;
Side side_of(bool outgoing, const Message& m) {
  return {outgoing, m.traffic, m.micro, m.chunk};
}

struct RankClock {
  std::size_t next = 0;  // instruction
  double now = 0.0;
  bool posted = false;  // the exchange at `next`
  std::int64_t live = 0;
  std::set<Side> under_way;    // started and not waited for
  std::map<Side, double> met;  // posted by both ranks and not waited for: when it is over
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
    switch (instruction.work) {
      case Work::exchange:
        if (!clock.posted) post(rank, instruction);
        clock.posted = true;
        if (!finish(rank, instruction)) return false;
        clock.posted = false;
        break;
      case Work::start:
        check_buffers(rank, instruction);
        post(rank, instruction);
        break;
      case Work::wait:
        if (!finish(rank, instruction)) return false;
        break;
      case Work::forward:
      case Work::backward:
        compute(rank, instruction);
        break;
    }
    ++clock.next;
    return true;
  }

  // Whether a message of this traffic has been started and not waited for.
  bool under_way(int rank, bool outgoing, Traffic traffic) {
    for (const Side& side : at(rank).under_way) {
      if (std::get<0>(side) == outgoing && std::get<1>(side) == traffic) return true;
    }
    return false;
  }

  void check_buffers(int rank, const Instruction& start) {
    for (bool const outgoing : {true, false}) {
      for (const Message& m : outgoing ? start.sends : start.recvs) {
        COPUS_CHECK(!under_way(rank, outgoing, m.traffic), "a message starts from a free buffer");
        at(rank).under_way.insert(side_of(outgoing, m));
      }
    }
  }

  // True when all messages of the instruction have met their counterparts: they are over.
  bool finish(int rank, const Instruction& instruction) {
    RankClock& clock = at(rank);
    for (bool const outgoing : {true, false}) {
      for (const Message& m : outgoing ? instruction.sends : instruction.recvs) {
        if (!clock.met.contains(side_of(outgoing, m))) return false;
      }
    }
    for (bool const outgoing : {true, false}) {
      for (const Message& m : outgoing ? instruction.sends : instruction.recvs) {
        auto const over = clock.met.extract(side_of(outgoing, m));
        clock.now = std::max(clock.now, over.mapped());
        clock.under_way.erase(over.key());
        if (!outgoing) clock.arrived.insert({m.traffic, m.micro, m.chunk});
      }
    }
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
    bool const writes = forward ? stage < stages - 1 : true;
    COPUS_CHECK(!writes || !under_way(rank, true, traffic), "work writes what is being sent");
    auto const index = static_cast<std::size_t>(rank);
    double const seconds =
        (forward ? times_.forward : times_.backward)[static_cast<std::size_t>(stage)];
    clock.now += seconds;
    run_.busy[index] += seconds;
    clock.live += forward ? 1 : -1;
    run_.live_peak[index] = std::max(run_.live_peak[index], clock.live);
  }

  void post(int rank, const Instruction& group) {
    double const now = at(rank).now;
    bool const started = group.work == Work::start;
    for (const Message& send : group.sends) {
      Lane const lane{rank, send.peer, started, started ? send.traffic : Traffic::activation};
      channels_[lane].sends.push_back({send, now});
      match(lane);
    }
    for (const Message& recv : group.recvs) {
      Lane const lane{recv.peer, rank, started, started ? recv.traffic : Traffic::activation};
      channels_[lane].recvs.push_back({recv, now});
      match(lane);
    }
  }

  void match(const Lane& lane) {
    Channel& channel = channels_[lane];
    int const from = std::get<0>(lane), to = std::get<1>(lane);
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
      at(from).met[side_of(true, send)] = over;
      at(to).met[side_of(false, recv)] = over;
    }
  }

  std::string describe(int rank) {
    const Instruction& exchange = list(rank)[at(rank).next];  // or a wait
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
  std::map<Lane, Channel> channels_;
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
