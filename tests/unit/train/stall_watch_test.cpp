// What a rank says of a call that does not end.
#include "train/stall_watch.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <future>

#include "copus/comm/communicator.h"

using namespace copus;

TEST_CASE("C22: a stuck call is named by operation, group and number once the rank is to stop") {
  CommActivity activity;
  activity.queue.begin("dp", "reduce_scatter");
  activity.queue.end();
  for (int call = 1; call <= 3; ++call) {
    if (call > 1) activity.own.end();
    activity.own.begin("tp", "all_reduce");
  }
  std::promise<std::string> said;
  std::size_t sentences = 0;
  {
    StallWatch const watch(
        activity, [] { return true; },
        [&](const std::string& words) {
          if (++sentences == 1) said.set_value(words);
        });
    std::string const words = said.get_future().get();
    CHECK(words.find("asked to stop, in all_reduce over tp (call 3) for ") == 0);
    CHECK(words.find("a peer has not come, or has ended") != std::string::npos);
  }
  CHECK(sentences == 1);  // and nothing of the group whose calls have ended
}

TEST_CASE(
    "R21: a peer that saves for longer than any limit is waited for, and said to be awaited") {
  CommActivity activity;
  std::promise<std::string> said;
  std::future<std::string> words = said.get_future();
  std::atomic<int> sentences{0}, sum{0};
  StallLimits const limits{1e9, 0.0, 1e9};  // of all phases only training may last
  CHECK_NOTHROW(run_ranks(2, [&](int rank, Communicator& world) {
    double one = 1.0;
    if (rank == 0) {
      // Writes its part until the other has lost patience.
      words.wait();
      world.all_reduce(std::span(&one, 1), ReduceOp::sum);
      return;
    }
    StallWatch const watch(
        activity, [] { return false; },
        [&](const std::string& text) {
          if (++sentences == 1) said.set_value(text);
        },
        limits);
    PhaseMark const phase(activity, "saving a checkpoint");
    activity.own.begin("world", "all_reduce");
    world.all_reduce(std::span(&one, 1), ReduceOp::sum);
    activity.own.end();
    sum = static_cast<int>(one);
  }));
  CHECK(sum == 2);
  CHECK(sentences == 1);
  CHECK(words.get().find(", while saving a checkpoint: a peer has not come") != std::string::npos);
  CHECK(*activity.phase.load() == 0);  // and it trains again
}
