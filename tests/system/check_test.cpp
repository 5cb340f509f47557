// Branched checks through the binary: at an interval and when asked to, seen and paid for, and the
// run as it would have been.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <map>

#include "support/command.h"
#include "support/reference.h"

using copus::test::Outcome;
using copus::test::Reference;
using copus::test::Workspace;
using nlohmann::json;

namespace {

void prepare(const Workspace& here) {
  Reference const reference("llama-gqa");
  REQUIRE(here.copus("prepare --tokenizer bytes --val-fraction 0.2 --out data '" +
                     reference.directory + "/text.txt'")
              .code == 0);
  here.write("c.json", R"({
    "model": {"family": "llama", "layers": 2, "hidden": 64, "heads": 4, "kv_heads": 4, "ffn": 128, "vocab": 257, "seq_len": 32},
    "data": {"train": "data", "val": "data"}, "batch": {"sequences": 8, "micro": 2, "max": 32}, "optimizer": {"lr": 1e-3},
    "train": {"tokens": 15360, "eval_tokens": 8192}, "gns": {"every_steps": 1, "half_life_tokens": 8192},
    "adapt": {"mode": "suggest", "interval_steps": 20, "min_dwell_steps": 20, "check_tokens": 4096}, "run_dir": "run"})");
}

std::vector<json> events(const std::vector<json>& metrics, const std::string& name) {
  std::vector<json> found;
  for (const json& line : metrics) {
    if (line.value("event", "") == name) found.push_back(line);
  }
  return found;
}

// What training did, without the time it took.
std::vector<json> numbers(const std::vector<json>& metrics) {
  std::vector<json> steps;
  for (const json& line : metrics) {
    if (line.contains("event")) continue;
    json step;
    for (const char* key : {"step", "tokens", "samples", "loss", "grad_norm", "lr", "batch", "gns"})
      if (line.contains(key)) step[key] = line[key];
    steps.push_back(step);
  }
  return steps;
}

// The newest checkpoint's tensors, by file.
std::map<std::string, std::string> saved(const Workspace& here, const std::string& run) {
  std::map<std::string, std::string> files;
  std::string const folder = run + "/checkpoints/latest";
  for (auto const& entry : std::filesystem::directory_iterator(here / folder)) {
    std::string const name = entry.path().filename();
    if (name.ends_with(".safetensors")) files[name] = here.read(folder + "/" + name);
  }
  return files;
}

}  // namespace

TEST_CASE("a run with checks at an interval is the run without them, bit for bit") {
  struct Case {
    std::string mode, ranks;
  };
  for (const Case& c : {Case{"log", ""}, Case{"suggest", "--ranks 2 --set parallel.pp=2"},
                        Case{"suggest",
                             "--ranks 4 --set parallel.dp=2 --set parallel.tp=2 --set "
                             "parallel.zero=1"}}) {
    Workspace const here;
    prepare(here);
    std::string const common =
        fmt::format("train c.json --threads 1 {} --set adapt.mode={} ", c.ranks, c.mode);
    REQUIRE(here.copus(common + "--run-dir without").code == 0);
    Outcome const with = here.copus(common + "--run-dir with --set adapt.check_every_tokens=5120");
    CAPTURE(c.mode, c.ranks, with.err);
    REQUIRE(with.code == 0);
    CHECK(numbers(here.metrics("with")) == numbers(here.metrics("without")));
    CHECK(numbers(here.metrics("with")).size() == 60);
    CHECK(saved(here, "with").size() >= 2);
    CHECK(saved(here, "with") == saved(here, "without"));

    // After 5,120 and 10,240 tokens; none at the end.
    std::vector<json> const checks = events(here.metrics("with"), "check");
    REQUIRE(checks.size() == 2);
    CHECK(events(here.metrics("without"), "check").empty());
    CHECK(checks[0]["tokens"] == 5120);
    CHECK(checks[1]["tokens"] == 10240);
    for (const json& check : checks) {
      CHECK(check["seconds"].get<double>() > 0.0);
      CHECK(check["branch_tokens"] == 4096);
      CHECK(check["from_loss"].get<double>() > 0.0);
      REQUIRE(check["branches"].size() == 3);
      for (std::size_t i = 0; i < 3; ++i) {
        json const& branch = check["branches"][i];
        CHECK(branch["batch"] == 8 << i);
        CHECK(branch["steps"] == 16 >> i);
        CHECK(branch["lr"] == 1e-3);
        CHECK(branch["loss"].get<double>() > 0.0);
      }
      CHECK(check["calibration"].get<double>() >= 1.0 / 16);
      CHECK(check["calibration"].get<double>() <= 16.0);
      std::string const reason = check["reason"];
      CHECK(!reason.empty());
      CHECK(with.err.find("branched check: " + reason) != std::string::npos);
    }
    if (c.mode == "log") continue;
    // What checks took is told with the decision that came after them.
    double told = 0.0, taken = 0.0;
    for (const json& decision : events(here.metrics("with"), "decision"))
      told += decision["check_seconds"].get<double>();
    for (const json& check : checks) taken += check["seconds"].get<double>();
    CHECK(told == Approx(taken));
  }
}

TEST_CASE("what a check found goes on in a resumed run, from mode log into the planner too") {
  Workspace const here;
  prepare(here);
  REQUIRE(here.copus("train c.json --threads 1 --ranks 2 --set adapt.mode=log --set "
                     "adapt.check_every_tokens=5120 --set train.tokens=7680")
              .code == 0);
  std::vector<json> const checks = events(here.metrics("run"), "check");
  REQUIRE(checks.size() == 1);
  Outcome const resumed = here.copus("train c.json --threads 1 --ranks 2 --resume");
  INFO(resumed.err);
  REQUIRE(resumed.code == 0);
  std::vector<json> const starts = events(here.metrics("run"), "planner");
  REQUIRE(starts.size() == 1);
  CHECK(starts[0]["memory"]["correction"] == checks[0]["calibration"]);
}

TEST_CASE("SIGUSR2 asks for a check; a run without a noise scale answers with one sentence") {
  Workspace const here;
  prepare(here);
  // The shell waits for the run's own words between what it does to it.
  auto const run = [&](const std::string& options, const std::string& first,
                       const std::string& answer) {
    return here.copus(
        "--version >/dev/null; : >out.txt; '" COPUS_BINARY
        "' train c.json --threads 1 --set "
        "train.tokens=1B " +
        options +
        " >out.txt 2>&1 & pid=$!; await() { tries=0; until grep -q "
        "\"$1\" out.txt || [ $((tries+=1)) -gt 600 ]; do sleep 0.1; done; }; await '" +
        first + "'; kill -USR2 $pid; await '" + answer + "'; kill -TERM $pid; wait $pid");
  };
  CHECK(
      run("--run-dir asked", "noise scale: [0-9]", "branched check: .* which train nothing").code ==
      3);
  CHECK(events(here.metrics("asked"), "check").size() == 1);
  CHECK(run("--run-dir off --set adapt.mode=off", "step      3 ", "no branched check: ").code == 3);
  CHECK_THAT(
      here.read("out.txt"),
      Catch::Contains("no branched check: adapt.mode is \"off\", so there is no noise scale"));
  CHECK(events(here.metrics("off"), "check").empty());
  CHECK(run("--run-dir warming --set schedule.warmup_tokens=500M", "noise scale: [0-9]",
            "no branched check: ")
            .code == 3);
  CHECK_THAT(here.read("out.txt"), Catch::Contains("schedule.warmup_tokens"));
  CHECK(events(here.metrics("warming"), "check").empty());
  CHECK(run("--run-dir full --set batch.max=8", "noise scale: [0-9]", "no branched check: ").code ==
        3);
  CHECK_THAT(here.read("out.txt"), Catch::Contains("batch.max 8"));
}

TEST_CASE("a run that is asked to stop in a check saves the state from before it") {
  Workspace const here;
  prepare(here);
  Outcome const stopped = here.copus(
      "--version >/dev/null; : >out.txt; '" COPUS_BINARY
      "' train c.json --threads 1 --set "
      "train.tokens=20480 --set adapt.check_every_tokens=5120 --set adapt.check_tokens=1B "
      ">out.txt 2>&1 & pid=$!; tries=0; until grep -q 'step     20 ' out.txt || "
      "[ $((tries+=1)) -gt 600 ]; do sleep 0.1; done; sleep 1; kill -TERM $pid; wait $pid");
  CHECK(stopped.code == 3);
  CHECK_THAT(here.read("out.txt"),
             Catch::Contains("branched check left unfinished: the run was asked to stop"));
  CHECK(here.metrics("run").back()["step"] == 20);
  REQUIRE(here.copus("train c.json --threads 1 --set train.tokens=5120 --run-dir whole").code == 0);
  CHECK(saved(here, "run").size() == 2);
  CHECK(saved(here, "run") == saved(here, "whole"));
}
