// copus simulate as a user runs it: the table, the document, the files, and what it refuses.
#include <catch2/catch.hpp>
#include <filesystem>
#include <sstream>

#include "support/command.h"

using copus::test::Outcome;
using copus::test::Workspace;
using Json = nlohmann::json;

namespace {

// Two nodes with a slow link between them: what the batch is worth depends on the noise scale.
const char* const kSmall =
    R"({"model": {"layers": 8, "hidden": 1024, "heads": 8, "ffn": 2816, "vocab": 32000,
                  "seq_len": 1024},
        "batch": {"sequences": 64, "min": 16, "max": 256},
        "train": {"tokens": "300M"},
        "adapt": {"interval_steps": 20, "min_dwell_steps": 20},
        "cluster": {"hardware": "a100-sxm-80gb", "nodes": 2, "gpus_per_node": 8,
                    "internode_gbps_per_gpu": 25}})";
const char* const kJump = " --noise points:0:20,50M:20,51M:5000,1B:5000";

Outcome simulated(const Workspace& here, const std::string& arguments) {
  Outcome outcome = here.copus("simulate " + arguments);
  CAPTURE(outcome.err);
  REQUIRE(outcome.code == 0);
  return outcome;
}

std::vector<Json> lines_of(const std::string& text) {
  std::vector<Json> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(Json::parse(line));
  return lines;
}

std::size_t entries(const Workspace& here) {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(here / "")) {
    if (entry.path().filename() != "stderr.txt") ++count;
  }
  return count;
}

}  // namespace

TEST_CASE("simulate --json has the goal, the curve and three policies with what they came to") {
  Workspace const here;
  here.write("c.json", kSmall);
  Outcome const outcome = simulated(here, std::string("c.json --json") + kJump);
  CHECK(outcome.err.empty());
  Json const all = Json::parse(outcome.out);
  CHECK(all.size() == 9);
  CHECK(all.at("world") == 16);
  CHECK(all.at("model").at("layers") == 8);
  CHECK(all.at("hardware") == "a100-sxm-80gb");
  CHECK(all.at("train_tokens") == 300'000'000);
  CHECK(all.at("noise").at("assumed") == false);
  CHECK(all.at("noise").at("start") == 20.0);
  CHECK(all.at("noise").at("end") == 5000.0);
  const Json& policies = all.at("policies");
  REQUIRE(policies.size() == 3);
  CHECK(policies[0].at("policy") == "static");
  CHECK(policies[1].at("policy") == "adaptive_batch");
  CHECK(policies[2].at("policy") == "co_adaptive");
  for (const Json& p : policies) {
    CHECK(p.size() == 20);
    double const seconds = p.at("seconds"), tokens = p.at("tokens");
    CHECK(p.at("useful_tokens") >= all.at("useful_tokens"));
    CHECK(p.at("tokens_per_second") == Approx(tokens / seconds));
    CHECK(p.at("mean_batch") == Approx(tokens / 1024 / p.at("steps").get<double>()));
    CHECK(p.at("speedup") == Approx(policies[0].at("seconds").get<double>() / seconds));
    CHECK(p.at("mfu") > 0.0);
    CHECK(p.at("mfu") < 1.0);
    CHECK(p.at("final").size() == 9);
    CHECK(p.at("first").size() == 9);
    CHECK(p.at("rollbacks") == 0);
    for (const Json& change : p.at("changes")) {
      CHECK_FALSE(change.at("reason").get<std::string>().empty());
      CHECK(change.at("acted") == true);
    }
  }
  CHECK(policies[0].at("decisions") == 0);
  CHECK(policies[0].at("changes").empty());
  CHECK(policies[0].at("switch_seconds") == 0.0);
  CHECK(policies[2].at("batch_changes") >= 1);
  CHECK(policies[2].at("changes").size() >= 1);
}

TEST_CASE("simulate's table has a row a policy, and every change with its reason") {
  Workspace const here;
  here.write("c.json", kSmall);
  Outcome const table = simulated(here, std::string("c.json") + kJump);
  for (const char* expected :
       {"16 ranks in nodes of 8, a100-sxm-80gb", "noise scale points:0:20", "goal: the progress of",
        "MFU %", "layouts", "\nstatic ", "\nadaptive_batch ", "\nco_adaptive ",
        "static: all the way batch", "co_adaptive: begins with batch", "because batch",
        "kept, as predicted", "the last of"}) {
    CAPTURE(expected, table.out);
    CHECK(table.out.find(expected) != std::string::npos);
  }
}

TEST_CASE("simulate --out has the summary of --json and a record a policy, whose ends agree") {
  Workspace const here;
  here.write("c.json", kSmall);
  Outcome const outcome = simulated(here, std::string("c.json --json --out a/b/sim/") + kJump);
  Json const document = Json::parse(outcome.out);
  CHECK(Json::parse(here.read("a/b/sim/summary.json")) == document);
  for (const Json& policy : document.at("policies")) {
    std::string const name = policy.at("policy");
    std::vector<Json> const lines = lines_of(here.read("a/b/sim/" + name + ".jsonl"));
    REQUIRE(lines.size() >= 2);
    CHECK(lines.back().at("event") == "stop");
    CHECK(lines.back().at("step") == policy.at("steps"));
    CHECK(lines.back().at("elapsed_seconds") == policy.at("seconds"));
    std::int64_t decisions = 0, acted = 0, reshards = 0, steps = 0, last_step = 0;
    for (const Json& line : lines) {
      CHECK(line.at("step") >= last_step);
      last_step = line.at("step");
      std::string const event = line.value("event", "");
      steps += event.empty();
      decisions += event == "decision";
      acted += event == "decision" && line.at("acted") == true;
      reshards += event == "reshard";
    }
    CHECK(steps >= last_step / 20);
    CHECK(decisions == policy.at("decisions"));
    CHECK(acted == static_cast<std::int64_t>(policy.at("changes").size()));
    CHECK(reshards ==
          policy.at("layout_changes").get<int>() + policy.at("micro_batch_changes").get<int>());
  }
  CHECK(std::distance(std::filesystem::directory_iterator(here / "a/b"), {}) == 1);
}

TEST_CASE("a simulated record, or a recorded run, is a curve to simulate along") {
  Workspace const here;
  here.write("c.json", kSmall);
  std::filesystem::create_directory(here / "sim");  // empty: may be written to
  simulated(here, std::string("c.json --json --out sim") + kJump);
  Json const again =
      Json::parse(simulated(here, "c.json --json --noise metrics:sim/co_adaptive.jsonl").out);
  CHECK(again.at("noise").at("start") == 20.0);
  CHECK(again.at("noise").at("end") == 5000.0);
  std::string const trace = COPUS_TEST_DIR "/golden/planner-trace";
  Outcome const recorded = simulated(here, "c.json --json --noise metrics:'" + trace + "'");
  CHECK(recorded.err.find("useful tokens; from there on the noise scale stays at") !=
        std::string::npos);
}

TEST_CASE("simulate says aloud what it had to assume") {
  Workspace const here;
  here.write("c.json", R"({"model": {"preset": "gpt2-124m"}, "batch": {"sequences": 64},
      "cluster": {"hardware": "h100-sxm", "gpus_per_node": 8}})");
  Outcome const outcome = simulated(here, "c.json --json");
  for (const char* expected : {"train.tokens: not given; taken as 2.49B, 20 a parameter",
                               "batch.min, batch.max: not given, or equal; every policy keeps "
                               "batch 64",
                               "--noise: not given; taken as power:16,"}) {
    CAPTURE(expected, outcome.err);
    CHECK(outcome.err.find(expected) != std::string::npos);
  }
  Json const all = Json::parse(outcome.out);
  CHECK(all.at("noise").at("assumed") == true);
  CHECK(all.at("noise").at("start") == 16.0);
  for (const Json& policy : all.at("policies")) CHECK(policy.at("batch_changes") == 0);
}

TEST_CASE("simulate's flags each change what comes out") {
  Workspace const here;
  here.write("c.json", kSmall);
  auto const run = [&](const std::string& flags) {
    return Json::parse(simulated(here, "c.json --json" + flags).out);
  };
  Json const plain = run(kJump);
  CHECK(run(kJump) == plain);
  CHECK(run(kJump + std::string(" --world 8")).at("world") == 8);
  CHECK(run(kJump + std::string(" --set train.tokens=200M")).at("useful_tokens") <
        plain.at("useful_tokens"));
  // So wide an interval that nothing is certain enough for a larger batch.
  Json const blind = run(kJump + std::string(" --noise-error 1e6"));
  CHECK(blind.at("policies")[1].at("batch_changes") == 0);
  CHECK(plain.at("policies")[1].at("batch_changes") > 0);
  Json const dear = run(kJump + std::string(" --switch-seconds 1e9"));
  CHECK(dear.at("policies")[2].at("layout_changes") == 0);
}

TEST_CASE("simulate names every mistake at once, exits with 2 and writes nothing") {
  Workspace const here;
  here.write("c.json", kSmall);
  std::filesystem::create_directory(here / "full");
  here.write("full/file", "here");
  std::size_t const before = entries(here);
  Outcome const many = here.copus(
      "simulate c.json --out full --noise power:0,x,9 --set nokey --set cluster.hardwar=h100-sxm");
  CHECK(many.code == 2);
  CHECK(many.out.empty());
  for (const char* expected :
       {"--out: full is there already; it takes a directory that is new or empty",
        "--noise: \"0\" is no noise scale", "\"x\" is not a count", "\"9\" is no exponent",
        "--set nokey", "cluster.hardwar"}) {
    CAPTURE(expected, many.err);
    CHECK(many.err.find(expected) != std::string::npos);
  }
  Outcome const played = here.copus(
      "simulate c.json --out new --set batch.schedule='0:64 1M:128' --set train.tokens=1000T "
      "--set adapt.script='[{\"step\": 5, \"batch\": 32}]' --noise metrics:none.jsonl "
      "--noise-error 0.1 --set cluster.hardware=h100-sxn");
  CHECK(played.code == 2);
  for (const char* expected :
       {"batch.schedule: is not played by simulate", "adapt.script: is not played",
        "train.tokens: 1000000000000000 are", "--noise: none.jsonl is no file",
        "--noise-error: 0.1 is not accepted with --noise metrics:", "did you mean h100-sxm"}) {
    CAPTURE(expected, played.err);
    CHECK(played.err.find(expected) != std::string::npos);
  }
  CHECK(here.copus("simulate").code == 2);
  for (const char* wrong : {"--world 0", "--noise-error -1", "--switch-seconds nan", "--noise 64",
                            "--out c.json", "--out c.json/below", "--noise metrics:c.json"}) {
    Outcome const one = here.copus(std::string("simulate c.json ") + wrong);
    CAPTURE(wrong, one.out, one.err);
    CHECK(one.code == 2);
    CHECK(one.out.empty());
    CHECK_FALSE(one.err.empty());
  }
  CHECK(entries(here) == before);
}

TEST_CASE("every configuration in configs/clusters simulates") {
  Workspace const here;
  int count = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(COPUS_TEST_DIR "/../configs/clusters")) {
    CAPTURE(entry.path());
    Json const all = Json::parse(
        simulated(here, "'" + entry.path().string() + "' --json --set train.tokens=5B").out);
    CHECK(all.at("policies").size() == 3);
    ++count;
  }
  CHECK(count >= 5);
}
