#include <catch2/catch.hpp>

#include "unit/core/config_fixture.h"

using namespace copus;

TEST_CASE("a count is exact in decimal, whatever its suffix") {
  CHECK(parse_count("0", "k") == 0);
  CHECK(parse_count("007", "k") == 7);
  CHECK(parse_count("250M", "k") == 250'000'000);
  CHECK(parse_count("1.5B", "k") == 1'500'000'000);
  CHECK(parse_count("0.1T", "k") == 100'000'000'000);
  CHECK(parse_count("1.001K", "k") == 1001);
  CHECK(parse_count("2k", "k") == 2000);
  CHECK(parse_count("9223372036854775807", "k") == 9223372036854775807);
}

TEST_CASE("what is not a whole number below 2^63 is no count, and the message names the key") {
  for (const char* text :
       {"", "M", "-1", "1.5", "1.0001K", "1.K", ".5K", "1 M", "1e6", "1MM", "9223372036854775808",
        "9300000T", "1.2.3M", "9.2233720368547758T", "0x10"}) {
    INFO(text);
    CHECK_THROWS_AS(parse_count(text, "train.tokens"), ConfigError);
    CHECK_THROWS_WITH(parse_count(text, "train.tokens"), Catch::Contains("train.tokens"));
  }
}

TEST_CASE("S10: a batch schedule is a list of steps with suffixes, strictly ascending from 0") {
  std::vector<BatchStep> const steps = parse_batch_schedule(" 0:16  2M:64 1.5B:1K", "s");
  CHECK(steps == std::vector<BatchStep>{{0, 16}, {2'000'000, 64}, {1'500'000'000, 1000}});
  CHECK(parse_batch_schedule(to_string(steps), "s") == steps);
  struct Case {
    std::string text, problem;
  };
  for (const Case& c : std::vector<Case>{{"1:16", "from token 0"},
                                         {" ", "from token 0"},
                                         {"0:16 5:32 5:64", "ascend strictly"},
                                         {"0:16 5:32 4:64", "ascend strictly"},
                                         {"0:16 2M", "TOKENS:SEQUENCES"},
                                         {"0:0", "at least 1"},
                                         {"0:16,2M:64", "TOKENS:SEQUENCES"}}) {
    INFO(c.text);
    CHECK_THROWS_WITH(parse_batch_schedule(c.text, "batch.schedule"),
                      Catch::Contains("batch.schedule") && Catch::Contains(c.problem));
    CHECK(with({{"batch.schedule", c.text}}).names({"batch.schedule", c.problem}));
  }
}

TEST_CASE("a schedule's batch holds from its token count on") {
  BatchConfig batch;
  batch.sequences = 16;
  CHECK(batch_at(batch, 5) == 16);
  batch.schedule = parse_batch_schedule("0:16 100:64 200:32", "s");
  CHECK(batch_at(batch, 0) == 16);
  CHECK(batch_at(batch, 99) == 16);
  CHECK(batch_at(batch, 100) == 64);
  CHECK(batch_at(batch, 199) == 64);
  CHECK(batch_at(batch, 1'000'000) == 32);
}

TEST_CASE("the nearest name is found across one slip of each kind, and not across a whole word") {
  std::vector<std::string> const names = {"sequences", "micro", "lr", "seq_len"};
  CHECK(nearest_name("sequnces", names) == "sequences");    // left out
  CHECK(nearest_name("sequencess", names) == "sequences");  // too much
  CHECK(nearest_name("mucro", names) == "micro");           // replaced
  CHECK(nearest_name("rl", names) == "lr");                 // swapped
  CHECK(nearest_name("seq-len", names) == "seq_len");
  CHECK(nearest_name("dropout", names).empty());
  CHECK(nearest_name("lr", {}).empty());
}

TEST_CASE("enumerations are named by the words of the file") {
  CHECK(name_of(Family::qwen2) == "qwen2");
  CHECK(name_of(DeviceChoice::automatic) == "auto");
  CHECK(name_of(BetaRule::half_life) == "half_life");
}
