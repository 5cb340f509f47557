// What a user does wrong: exit code 2, every mistake at once, nothing written.
#include <catch2/catch.hpp>

#include "support/command.h"

using copus::test::Outcome;
using copus::test::Workspace;

TEST_CASE(
    "no arguments, an unknown subcommand and an unknown flag are mistakes; help and version are "
    "not") {
  Workspace const here;
  CHECK(here.copus("").code == 2);
  CHECK(here.copus("tain x.json").code == 2);
  CHECK(here.copus("train x.json --rezume").code == 2);
  CHECK(here.copus("--help").code == 0);
  for (const char* command :
       {"train", "prepare", "eval", "import", "export", "plan", "bench step", "bench ops"}) {
    Outcome const help = here.copus(std::string(command) + " --help");
    CHECK(help.code == 0);
    CHECK(help.out.find("Example") != std::string::npos);
  }
  Outcome const version = here.copus("--version");
  CHECK(version.code == 0);
  CHECK(std::count(version.out.begin(), version.out.end(), '\n') == 1);
}

TEST_CASE(
    "U1: all mistakes of a configuration at once, the nearest key named, and nothing written") {
  Workspace const here;
  here.write(
      "c.json",
      R"({"model": {"layers": 2, "hiden": 32, "heads": 5, "ffn": 64, "vocab": 257, "seq_len": 32},
                          "batch": {"sequences": "many"}, "train": {"tokens": -4}, "adpt": {}, "run_dir": "run"})");
  Outcome const outcome = here.copus("train c.json --set optimizer.lrr=1 --set nokey");
  CHECK(outcome.code == 2);
  CHECK(outcome.out.empty());
  for (const char* expected : {"hiden", "hidden", "batch.sequences", "many", "train.tokens", "-4",
                               "adpt", "adapt", "optimizer.lrr", "optimizer.lr", "--set nokey"}) {
    CAPTURE(expected, outcome.err);
    CHECK(outcome.err.find(expected) != std::string::npos);
  }
  CHECK_FALSE(here.has("run"));
}

TEST_CASE("a syntax error comes with file, line and column") {
  Workspace const here;
  here.write("c.json", "{\n  \"model\": {\"layers\" 2}\n}\n");
  Outcome const outcome = here.copus("train c.json");
  CHECK(outcome.code == 2);
  CHECK(outcome.err.find("c.json:2:22: ") != std::string::npos);
}

TEST_CASE("what this version does not do yet is refused by key and value") {
  Workspace const here;
  here.write("c.json",
             R"({"model": {"preset": "gpt2-124m", "seq_len": 32}, "data": {"train": "nowhere"},
                          "batch": {"sequences": 8}, "train": {"tokens": 1000, "precision": "bf16"},
                          "log": {"tensorboard": true}, "adapt": {"mode": "act"}, "run_dir": "run"})");
  Outcome const outcome = here.copus("train c.json");
  CHECK(outcome.code == 2);
  for (const char* expected : {"train.precision", "bf16", "log.tensorboard", "adapt.mode", "act"}) {
    CAPTURE(expected, outcome.err);
    CHECK(outcome.err.find(expected) != std::string::npos);
  }
  CHECK_FALSE(here.has("run"));
}

TEST_CASE("missing data, a missing config and a missing checkpoint are named") {
  Workspace const here;
  here.write(
      "c.json",
      R"({"model": {"layers": 1, "hidden": 32, "heads": 4, "kv_heads": 4, "ffn": 64, "vocab": 257, "seq_len": 32},
                          "data": {"train": "nowhere", "val": "neither"}, "batch": {"sequences": 8},
                          "train": {"tokens": 1000}, "run_dir": "run"})");
  Outcome const data = here.copus("train c.json");
  CHECK(data.code == 2);
  CHECK(data.err.find("nowhere") != std::string::npos);
  CHECK(data.err.find("neither") != std::string::npos);
  CHECK_FALSE(here.has("run"));
  Outcome const config = here.copus("train absent.json");
  CHECK(config.code == 2);
  CHECK(config.err.find("absent.json") != std::string::npos);
  Outcome const checkpoint = here.copus("eval absent --data alsoabsent");
  CHECK(checkpoint.code == 2);
  CHECK(checkpoint.err.find("absent") != std::string::npos);
}

TEST_CASE("bench step names a wrong preset with the nearest one") {
  Workspace const here;
  Outcome const outcome = here.copus("bench step --model gpt2-124");
  CHECK(outcome.code == 2);
  CHECK(outcome.err.find("gpt2-124m") != std::string::npos);
}
