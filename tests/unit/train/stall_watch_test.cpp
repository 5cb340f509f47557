// What a rank says of a call that does not end.
#include "train/stall_watch.h"

#include <catch2/catch.hpp>
#include <future>

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
