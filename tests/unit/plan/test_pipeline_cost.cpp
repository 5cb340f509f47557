#include <catch2/catch.hpp>

#include "copus/plan/cost.h"

namespace copus {
namespace {

Layout pipeline(int pp, int v) {
  Layout layout;
  layout.pp = pp;
  layout.virtual_stages = v;
  return layout;
}

// What the simulator says, list by list.
double simulated(const Layout& layout, const PipelineTimes& times, std::int64_t m,
                 Messages messages = Messages::between_work) {
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < layout.pp; ++rank) {
    schedules.push_back(pipeline_schedule(layout, rank, m, messages));
  }
  PipelineRun const run = simulate_pipeline(layout, schedules, times);
  REQUIRE(run.stuck.empty());
  return run.seconds;
}

double closed(const Layout& layout, const PipelineTimes& times, std::int64_t m,
              double can_start = 0.0) {
  PipelineCost const line = pipeline_cost(layout, times, m, 1.0, can_start);
  return line.alpha + line.beta * static_cast<double>(m);
}

// Stages of `layers` layers as layers_of cuts them; the head costs as much as `head` layers.
PipelineTimes stages_of(const Layout& layout, std::int64_t layers, double head, double ratio) {
  PipelineTimes times;
  int const count = layout.pp * layout.virtual_stages;
  for (int place = 0; place < count; ++place) {
    LayerRange const range = layers_of(layers, layout, place % layout.pp, place / layout.pp);
    auto const own = static_cast<double>(range.end - range.begin);
    double const extra = place == count - 1 ? head : 0.0;
    times.forward.push_back(own + extra);
    times.backward.push_back(ratio * own + 2.0 * extra);
  }
  return times;
}

// Sums of a few hundred terms: rounding alone.
constexpr double kRounding = 1e-12;

}  // namespace

TEST_CASE("the closed form is the simulator's time for uneven layers, heavy heads and recompute") {
  int cases = 0;
  for (int pp : {1, 2, 3, 4, 5, 8}) {
    for (std::int64_t layers : {8, 9, 10, 12, 13, 15, 16, 33}) {
      if (layers < pp) continue;
      for (double head : {0.0, 0.7, 1.0, 2.5}) {
        for (double ratio : {2.0, 3.0}) {
          Layout const layout = pipeline(pp, 1);
          PipelineTimes const times = stages_of(layout, layers, head, ratio);
          for (std::int64_t m : {pp, pp + 1, 2 * pp, 4 * pp, 7 * pp}) {
            CAPTURE(pp, layers, head, ratio, m);
            CHECK(closed(layout, times, m) ==
                  Approx(simulated(layout, times, m)).epsilon(kRounding));
            ++cases;
          }
        }
      }
    }
  }
  CHECK(cases > 1500);
}

TEST_CASE("the closed form is the simulator's time for interleaved chunks with a heavy last one") {
  for (int pp : {2, 3, 4}) {
    for (int v : {2, 3, 4}) {
      for (double head : {0.0, 0.3, 1.0, 4.0}) {
        Layout const layout = pipeline(pp, v);
        PipelineTimes const times = stages_of(layout, 2 * pp * v, head, 2.0);
        for (std::int64_t m = pp; m <= 6 * pp; m += pp) {
          CAPTURE(pp, v, head, m);
          CHECK(closed(layout, times, m) == Approx(simulated(layout, times, m)).epsilon(kRounding));
        }
      }
    }
  }
}

TEST_CASE("messages between even stages cost what the simulator lets them cost") {
  for (int pp : {2, 3, 4, 8}) {
    for (int v : {1, 2, 3}) {
      Layout const layout = pipeline(pp, v);
      PipelineTimes times = stages_of(layout, pp * v, 0.0, 2.0);
      for (double message : {0.1, 0.5}) {
        times.message = message;
        for (std::int64_t m = pp; m <= 4 * pp; m += pp) {
          CAPTURE(pp, v, message, m);
          CHECK(closed(layout, times, m) == Approx(simulated(layout, times, m)).epsilon(kRounding));
        }
      }
    }
  }
}

TEST_CASE("messages under the work of virtual stages cost what the simulator lets them cost") {
  for (int pp : {2, 3, 4, 8}) {
    for (int v : {1, 2, 3}) {
      Layout const layout = pipeline(pp, v);
      PipelineTimes times = stages_of(layout, pp * v, 0.0, 2.0);
      // The last takes longer than a chunk's forward.
      for (double message : {0.1, 0.5, 1.0, 1.5}) {
        times.message = message;
        for (std::int64_t m = pp; m <= 4 * pp; m += pp) {
          CAPTURE(pp, v, message, m);
          double const real = simulated(layout, times, m, messages_of(layout, true));
          CHECK(closed(layout, times, m, 1.0) == Approx(real).epsilon(kRounding));
          double const half = (real + closed(layout, times, m)) / 2.0;
          CHECK(closed(layout, times, m, 0.5) == Approx(half).epsilon(kRounding));
        }
      }
    }
  }
}

TEST_CASE("with equal stages the bubble is the other stages' time over the virtual stages") {
  for (int v : {1, 2, 4}) {
    Layout const layout = pipeline(4, v);
    PipelineTimes const times = stages_of(layout, 16, 0.0, 2.0);
    PipelineCost const line = pipeline_cost(layout, times, 8);
    CHECK(line.beta == 12.0);           // 4 layers of 3
    CHECK(line.alpha == 3 * 12.0 / v);  // Narayanan et al. 2021, section 2.2
  }
}

TEST_CASE(
    "with fewer micro-batches than stages the closed form is a lower bound, exact for equal "
    "stages") {
  // The longest path may then change from one slow stage to another, which the form does not
  // follow.
  for (int pp : {2, 4, 8}) {
    Layout const layout = pipeline(pp, 1);
    for (std::int64_t m = 1; m < pp; ++m) {
      PipelineTimes const even = stages_of(layout, 2 * pp, 0.0, 2.0);
      CHECK(closed(layout, even, m) == Approx(simulated(layout, even, m)).epsilon(kRounding));
      PipelineTimes const uneven = stages_of(layout, 2 * pp + 1, 0.7, 2.0);
      double const real = simulated(layout, uneven, m);
      CAPTURE(pp, m, closed(layout, uneven, m), real);
      CHECK(closed(layout, uneven, m) <= real * (1 + kRounding));
    }
  }
}

// Four equal stages of 1 + 2 seconds, as measured with two processors for four busy ranks.
TEST_CASE(
    "idle stages lend their processors: one micro-batch runs at full speed, many need all the "
    "work's time") {
  Layout const layout = pipeline(4, 1);
  PipelineTimes const times{{1, 1, 1, 1}, {2, 2, 2, 2}, 0.0};
  auto const seconds = [&](std::int64_t m, double alone) {
    PipelineCost const line = pipeline_cost(layout, times, m, alone);
    return line.alpha + line.beta * static_cast<double>(m);
  };
  CHECK(seconds(1, 1.0) == Approx(12.0));
  CHECK(seconds(8, 1.0) == Approx(33.0));
  // One stage at a time, alone on its processor; a fourth stage's worth more would not help.
  CHECK(seconds(1, 2.0) == Approx(6.0));
  CHECK(seconds(2, 2.0) == Approx(7.5));
  // Two processors for 8 x 4 x 3 seconds at half speed.
  CHECK(seconds(8, 2.0) == Approx(24.0));
  CHECK(seconds(1, 8.0) == Approx(3.0));
}

}  // namespace copus
