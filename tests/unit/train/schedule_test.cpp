#include "copus/train/schedule.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "copus/core/config_io.h"

using namespace copus;

namespace {

OptimizerConfig peak(double lr) {
  OptimizerConfig o;
  o.lr = lr;
  return o;
}

}  // namespace

TEST_CASE("a cosine schedule warms up, peaks, and reaches its floor exactly on the last token") {
  ScheduleConfig const s{ScheduleKind::cosine, 1000, 0, 0.1};
  CHECK(learning_rate(peak(1.0), s, 11000, 100) == Approx(0.1));
  CHECK(learning_rate(peak(1.0), s, 11000, 1000) == Approx(1.0));
  CHECK(learning_rate(peak(1.0), s, 11000, 6000) == Approx(0.55));  // half-way between 1 and 0.1
  CHECK(learning_rate(peak(1.0), s, 11000, 11000) == 0.1);
  CHECK(learning_rate(peak(1.0), s, 11000, 12000) == 0.1);
}

TEST_CASE("decay_tokens ends a cosine early and the floor holds from there") {
  ScheduleConfig const s{ScheduleKind::cosine, 1000, 4000, 0.0};
  CHECK(learning_rate(peak(2.0), s, 10000, 2500) == Approx(1.0));
  CHECK(learning_rate(peak(2.0), s, 10000, 4000) == Approx(0.0).margin(1e-15));
  CHECK(learning_rate(peak(2.0), s, 10000, 9000) == Approx(0.0).margin(1e-15));
}

TEST_CASE(
    "S1: with a growing batch, warm-up, decay and end fall on their tokens, and the last step has "
    "the final rate") {
  // 8 sequences, then 16, of 10 tokens: steps differ in size, the schedule does not notice.
  BatchConfig batch;
  batch.sequences = 8;
  batch.schedule = {{0, 8}, {1600, 16}};
  ScheduleConfig const s{ScheduleKind::wsd, 800, 2400, 0.0};
  std::int64_t const total = 16000;
  std::int64_t tokens = 0;
  double last = -1.0;
  while (tokens < total) {
    tokens += batch_at(batch, tokens) * 10;
    last = learning_rate(peak(1.0), s, total, tokens);
    if (tokens <= 800) CHECK(last == Approx(static_cast<double>(tokens) / 800.0));
    if (tokens > 800 && tokens <= total - 2400) CHECK(last == 1.0);
    if (tokens > total - 2400)
      CHECK(last == Approx(static_cast<double>(total - tokens) / 2400.0).margin(1e-15));
  }
  CHECK(tokens == total);
  CHECK(last == 0.0);
}

TEST_CASE("S2: the learning rate is a function of tokens, whatever the accumulation or batch") {
  ScheduleConfig const s{ScheduleKind::cosine, 640, 0, 0.1};
  for (std::int64_t batch : {64, 320}) {
    for (std::int64_t tokens = batch; tokens <= 6400; tokens += batch) {
      if (tokens % 320 == 0) {
        double const expected =
            tokens <= 640
                ? static_cast<double>(tokens) / 640.0
                : 0.1 + 0.45 * (1.0 + std::cos(std::acos(-1.0) * static_cast<double>(tokens - 640) /
                                               5760.0));
        CHECK(learning_rate(peak(1.0), s, 6400, tokens) == Approx(expected));
      }
    }
  }
}

TEST_CASE("S6: with warm-up 22 of 220 steps the rate is above zero until the last step") {
  ScheduleConfig const s{ScheduleKind::cosine, 22, 0, 0.0};
  for (std::int64_t step = 1; step < 220; ++step)
    CHECK(learning_rate(peak(1.0), s, 220, step) > 0.0);
}

TEST_CASE("a learning rate of zero is legal and stays zero") {
  ScheduleConfig const s{ScheduleKind::constant, 10, 0, 0.1};
  CHECK(learning_rate(peak(0.0), s, 100, 5) == 0.0);
  CHECK(learning_rate(peak(0.0), s, 100, 50) == 0.0);
}

TEST_CASE("S10: a batch schedule in tokens takes effect at its token counts") {
  BatchConfig batch;
  batch.sequences = 16;
  batch.schedule = parse_batch_schedule("0:16 2M:64", "batch.schedule");
  CHECK(batch_at(batch, 0) == 16);
  CHECK(batch_at(batch, 1'999'999) == 16);
  CHECK(batch_at(batch, 2'000'000) == 64);
  CHECK(batch_at(batch, 50'000'000) == 64);
}
