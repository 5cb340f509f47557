#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <map>

#include "copus/core/error.h"
#include "copus/parallel/schedule.h"

namespace copus {
namespace {

constexpr Messages kBetween = Messages::between_work, kUnder = Messages::under_work;

std::vector<Schedule> schedules_of(const Layout& layout, std::int64_t m,
                                   Messages messages = kBetween) {
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < layout.pp; ++rank) {
    schedules.push_back(pipeline_schedule(layout, rank, m, messages));
  }
  return schedules;
}

// Forward 1, backward 2 for every chunk: small integers, so that sums are exact.
PipelineTimes even_times(const Layout& layout, double message = 0.0) {
  auto const stages = static_cast<std::size_t>(layout.pp * layout.virtual_stages);
  return {std::vector<double>(stages, 1.0), std::vector<double>(stages, 2.0), message};
}

Layout pipeline(int pp, int v) {
  Layout layout;
  layout.pp = pp;
  layout.virtual_stages = v;
  return layout;
}

// Calls body(layout, m, messages) for all legal m in 1 .. 3 pp.
template <class Body>
void for_all_pipelines(Body body) {
  for (int pp = 1; pp <= 8; ++pp) {
    for (int v = 1; v <= 4; ++v) {
      for (std::int64_t m = 1; m <= 3 * pp; ++m) {
        for (Messages const messages : {kBetween, kUnder}) {
          if (v == 1 || m % pp == 0) body(pipeline(pp, v), m, messages);
        }
      }
    }
  }
}

double seconds_of(const Layout& layout, std::int64_t m, const PipelineTimes& times,
                  Messages messages) {
  PipelineRun const run = simulate_pipeline(layout, schedules_of(layout, m, messages), times);
  CHECK(run.stuck.empty());
  return run.seconds;
}

}  // namespace

TEST_CASE(
    "no pipeline of up to 8 ranks and 4 virtual stages hangs for any number of micro-batches up to "
    "3 pp") {
  for_all_pipelines([](const Layout& layout, std::int64_t m, Messages messages) {
    CAPTURE(layout.pp, layout.virtual_stages, m, messages == kUnder);
    std::vector<Schedule> const schedules = schedules_of(layout, m, messages);
    // Messages that take longer than any work, too.
    for (double const message : {0.0, 0.5, 10.0}) {
      CHECK(simulate_pipeline(layout, schedules, even_times(layout, message)).stuck.empty());
    }
  });
}

TEST_CASE("every micro-batch goes through every chunk once forward and then once backward") {
  for_all_pipelines([](const Layout& layout, std::int64_t m, Messages messages) {
    CAPTURE(layout.pp, layout.virtual_stages, m);
    for (const Schedule& schedule : schedules_of(layout, m, messages)) {
      std::map<std::pair<std::int64_t, int>, int> forwards, backwards;
      for (const Instruction& step : schedule) {
        std::pair const key{step.micro, step.chunk};
        if (step.work == Work::forward) ++forwards[key];
        if (step.work == Work::backward) {
          ++backwards[key];
          CHECK(forwards[key] == 1);
        }
      }
      CHECK(forwards == backwards);
      CHECK(forwards.size() == static_cast<std::size_t>(m * layout.virtual_stages));
      for (const auto& [key, count] : forwards) CHECK(count == 1);
    }
  });
}

TEST_CASE("the live micro-batches counted while running are those of the closed form") {
  for_all_pipelines([](const Layout& layout, std::int64_t m, Messages messages) {
    CAPTURE(layout.pp, layout.virtual_stages, m);
    PipelineRun const run =
        simulate_pipeline(layout, schedules_of(layout, m, messages), even_times(layout));
    std::int64_t const pp = layout.pp, v = layout.virtual_stages;
    for (int rank = 0; rank < pp; ++rank) {
      std::int64_t const expected =
          v == 1 ? std::min(pp - rank, m) : std::min(m * v, 2 * (pp - 1 - rank) + (v - 1) * pp + 1);
      CHECK(run.live_peak[static_cast<std::size_t>(rank)] == expected);
      CHECK(live_peak(layout, rank, m) == expected);
    }
  });
}

TEST_CASE("a pipeline loses the time of pp - 1 micro-batches through one chunk, no more") {
  for_all_pipelines([](const Layout& layout, std::int64_t m, Messages messages) {
    CAPTURE(layout.pp, layout.virtual_stages, m);
    PipelineRun const run =
        simulate_pipeline(layout, schedules_of(layout, m, messages), even_times(layout));
    double const chunk = 3.0;
    CHECK(run.seconds == chunk * static_cast<double>(m * layout.virtual_stages + layout.pp - 1));
    CHECK(run.bubble_seconds() == chunk * (layout.pp - 1));
  });
}

TEST_CASE("a slow stage sets the pace of a pipeline") {
  Layout const layout = pipeline(4, 1);
  PipelineTimes times = even_times(layout);
  times.forward[2] = 2.0;
  times.backward[2] = 4.0;
  PipelineRun const run = simulate_pipeline(layout, schedules_of(layout, 12), times);
  // Stage 2's 12 micro-batches; before them one forward through stages 0 and 1; after them one
  // backward through 1 and 0; and once it waits for stage 3, whose first forward and backward (3)
  // outlast its own second forward (2).
  CHECK(run.seconds == 12 * 6.0 + 2 * 1.0 + 2 * 2.0 + 1.0);
}

TEST_CASE("the work of a rank has the same order wherever its messages go") {
  for_all_pipelines([](const Layout& layout, std::int64_t m, Messages messages) {
    auto const work_of = [&](int rank, Messages which) {
      Schedule work;
      for (const Instruction& step : pipeline_schedule(layout, rank, m, which)) {
        if (step.work == Work::forward || step.work == Work::backward) work.push_back(step);
      }
      return work;
    };
    for (int rank = 0; rank < layout.pp; ++rank)
      CHECK(work_of(rank, messages) == work_of(rank, kBetween));
  });
}

TEST_CASE("every message that is started is waited for, and every one of an exchange is started") {
  for_all_pipelines([](const Layout& layout, std::int64_t m, Messages) {
    for (int rank = 0; rank < layout.pp; ++rank) {
      std::map<Work, std::size_t> sends, recvs;
      for (Messages const messages : {kBetween, kUnder}) {
        for (const Instruction& step : pipeline_schedule(layout, rank, m, messages)) {
          sends[step.work] += step.sends.size();
          recvs[step.work] += step.recvs.size();
        }
      }
      CAPTURE(layout.pp, layout.virtual_stages, m, rank);
      CHECK(sends[Work::start] == sends[Work::exchange]);
      CHECK(recvs[Work::start] == recvs[Work::exchange]);
      CHECK(sends[Work::wait] == sends[Work::start]);
      CHECK(recvs[Work::wait] == recvs[Work::start]);
    }
  });
}

TEST_CASE("messages under work never take longer than messages between it") {
  for_all_pipelines([](const Layout& layout, std::int64_t m, Messages) {
    for (double const message : {0.1, 0.5, 1.0, 4.0}) {
      for (double const last : {1.0, 1.5}) {
        PipelineTimes times = even_times(layout, message);
        times.forward.back() *= last;
        times.backward.back() *= last;
        CAPTURE(layout.pp, layout.virtual_stages, m, message, last);
        CHECK(seconds_of(layout, m, times, kUnder) <=
              seconds_of(layout, m, times, kBetween) + 1e-9);
      }
    }
  });
}

TEST_CASE("virtual stages hide every message but those of one micro-batch on its way") {
  // Up to a chunk's forward, 1: it waits for a message of the backward before it, and the other way
  // round.
  for (int pp : {2, 4, 8}) {
    for (int v : {2, 3, 4}) {
      Layout const layout = pipeline(pp, v);
      for (double const message : {0.25, 1.0}) {
        for (std::int64_t m = pp; m <= 4 * pp; m += pp) {
          CAPTURE(pp, v, message, m);
          double const chunks = 3.0 * static_cast<double>(m * v + pp - 1);
          CHECK(seconds_of(layout, m, even_times(layout, message), kUnder) ==
                chunks + 2.0 * (pp * v - 1) * message);
        }
      }
    }
  }
}

TEST_CASE("without virtual stages a slow stage hides its messages, and even ones half a message") {
  for (std::int64_t const m : {8, 32}) {
    // Two stages in step: each waits for the other's message. The last one has no forward to do
    // meanwhile but that whose input it waits for.
    PipelineTimes times = even_times(pipeline(2, 1), 0.25);
    auto const micro_batches = static_cast<double>(m);
    CHECK(seconds_of(pipeline(2, 1), m, times, kUnder) ==
          3.0 * (micro_batches + 1) + 0.25 * micro_batches);
    // The one that takes longer by both messages waits for none.
    times.backward[1] = 2.5;
    CHECK(seconds_of(pipeline(2, 1), m, times, kUnder) == 3.0 + 3.5 * micro_batches + 0.5);
    CHECK(seconds_of(pipeline(2, 1), m, times, kBetween) == 3.0 + 3.75 * micro_batches + 0.25);
  }
}

TEST_CASE(
    "interleaving refuses a number of micro-batches that pp does not divide and names the "
    "nearest") {
  Layout const layout = pipeline(4, 2);
  CHECK_THROWS_AS(pipeline_schedule(layout, 0, 6, kBetween), ConfigError);
  CHECK_THROWS_WITH(pipeline_schedule(layout, 0, 6, kBetween), Catch::Contains("4 or 8"));
  CHECK_THROWS_WITH(pipeline_schedule(layout, 0, 3, kBetween), Catch::EndsWith("fits: 4"));
  CHECK_NOTHROW(pipeline_schedule(layout, 0, 8, kBetween));
}

TEST_CASE("the simulator sees a list that would hang") {
  // Both ranks send first and receive later: fine with buffers, a hang without.
  Layout const layout = pipeline(2, 2);
  auto const message = [](int peer, int chunk) {
    return Message{Traffic::activation, peer, 0, chunk};
  };
  auto const exchange = [](std::vector<Message> sends, std::vector<Message> recvs) {
    return Instruction{Work::exchange, 0, 0, std::move(sends), std::move(recvs)};
  };
  std::vector<Schedule> lists{
      {exchange({message(1, 0)}, {}), exchange({}, {message(1, 1)})},
      {exchange({message(0, 0)}, {}), exchange({}, {message(0, 0)})},
  };
  PipelineRun const run = simulate_pipeline(layout, lists, even_times(layout));
  CHECK_THAT(run.stuck, Catch::Contains("rank 0 waits") && Catch::Contains("rank 1 waits"));
  // Grouped, the same messages pass.
  lists = {{exchange({message(1, 0)}, {message(1, 1)})},
           {exchange({message(0, 0)}, {message(0, 0)})}};
  CHECK(simulate_pipeline(layout, lists, even_times(layout)).stuck.empty());
}

TEST_CASE("the simulator sees buffers that are used twice at a time") {
  Layout const layout = pipeline(2, 1);
  std::vector<Schedule> const lists = schedules_of(layout, 3, kUnder);
  // Each list without one of its waits for what was sent, and each with a receive started early.
  int found = 0;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    for (std::size_t i = 0; i < lists[rank].size(); ++i) {
      std::vector<Schedule> changed = lists;
      Instruction& step = changed[rank][i];
      if (step.work == Work::wait && !step.sends.empty() && i + 1 < lists[rank].size()) {
        step.sends.clear();
      } else if (step.work == Work::start && !step.recvs.empty() && i > 0) {
        std::swap(step, changed[rank][i - 1]);
      } else {
        continue;
      }
      CAPTURE(rank, i);
      CHECK_THROWS_AS(simulate_pipeline(layout, changed, even_times(layout)), InternalError);
      ++found;
    }
  }
  CHECK(found >= 6);
}

TEST_CASE("the simulator sees work without its input and messages that cross") {
  Layout const layout = pipeline(2, 1);
  std::vector<Schedule> lists = schedules_of(layout, 2);
  std::vector<Schedule> early = lists;
  early[1].erase(early[1].begin());
  CHECK_THROWS_AS(simulate_pipeline(layout, early, even_times(layout)), InternalError);
  std::vector<Schedule> crossed = lists;
  crossed[1].front().recvs.front().micro = 1;
  CHECK_THROWS_AS(simulate_pipeline(layout, crossed, even_times(layout)), InternalError);
}

}  // namespace copus
