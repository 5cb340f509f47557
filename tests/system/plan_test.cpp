// copus plan as a user runs it: the table, the document, and what it refuses.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <set>

#include "support/command.h"

using copus::test::Outcome;
using copus::test::Workspace;
using Json = nlohmann::json;

namespace {

const char* const kSmall =
    R"({"model": {"layers": 4, "hidden": 64, "heads": 8, "kv_heads": 4, "ffn": 128, "vocab": 300,
                  "seq_len": 32},
        "batch": {"sequences": 16},
        "cluster": {"hardware": "h100-sxm", "nodes": 1, "gpus_per_node": 8}})";

Json planned(const Workspace& here, const std::string& arguments) {
  Outcome const outcome = here.copus("plan " + arguments + " --json");
  CAPTURE(outcome.err);
  REQUIRE(outcome.code == 0);
  return Json::parse(outcome.out);
}

}  // namespace

TEST_CASE("plan --json has model, world and every candidate with its price, best first") {
  Workspace const here;
  here.write("c.json", kSmall);
  Json const plan = planned(here, "c.json --critical-batch 64");
  CHECK(plan.size() == 3);
  CHECK(plan.at("world") == 8);
  CHECK(plan.at("model").at("layers") == 4);
  REQUIRE_FALSE(plan.at("candidates").empty());
  double before = 1e300;
  for (const Json& c : plan.at("candidates")) {
    CHECK(c.size() == 16);
    CHECK(c.at("dp").get<int>() * c.at("tp").get<int>() * c.at("pp").get<int>() == 8);
    CHECK(c.at("batch") == 16);
    CHECK(c.at("zero") == 0);  // the default is no "auto"
    CHECK(c.at("feasible") == true);
    CHECK(c.at("reason") == "");
    double const speed = c.at("tokens_per_second");
    CHECK(speed == Approx(16 * 32 / c.at("step_seconds").get<double>()));
    CHECK(c.at("mfu") > 0.0);
    CHECK(c.at("mfu") < 1.0);
    // Objectives at B = 16, phi = 64.
    CHECK(c.at("goodput").at("plain") == Approx(speed * 0.8));
    CHECK(c.at("goodput").at("sqrt_lr") == Approx(speed * 0.8 * 4));
    CHECK(c.at("goodput").at("normalized") == Approx(speed * std::sqrt(0.8)));
    CHECK(c.at("goodput").at("plain") <= before * (1 + 1e-12));
    before = c.at("goodput").at("plain");
    std::int64_t sum = 0;
    for (const auto& [name, bytes] : c.at("memory_bytes").items()) {
      if (name != "total") sum += bytes.get<std::int64_t>();
    }
    CHECK(sum == c.at("memory_bytes").at("total"));
  }
}

TEST_CASE("plan lists ZeRO 0 and 1, also at dp 1, when zero is auto") {
  Workspace const here;
  here.write("c.json", kSmall);
  Json const plan = planned(here, "c.json --set parallel.zero=auto --set parallel.dp=1");
  std::set<int> stages;
  for (const Json& c : plan.at("candidates")) stages.insert(c.at("zero").get<int>());
  CHECK(stages == std::set<int>{0, 1});
}

TEST_CASE("plan --world takes the place of the cluster's size, and idle ranks are said to idle") {
  Workspace const here;
  here.write("c.json", kSmall);
  Json const plan = planned(here, "c.json --world 2");
  CHECK(plan.at("world") == 2);
  for (const Json& c : plan.at("candidates")) {
    CHECK(c.at("dp").get<int>() * c.at("tp").get<int>() * c.at("pp").get<int>() == 2);
  }
  // 11 ranks: dp 11 does not divide 16 sequences, and no tp or pp is 11.
  Outcome const idle = here.copus("plan c.json --world 11 --json");
  CHECK(idle.code == 0);
  CHECK(idle.err.find("of 11 ranks stay idle") != std::string::npos);
  CHECK_NOTHROW(Json::parse(idle.out));
}

TEST_CASE("plan's table has the best rows, where the time goes, and what was refused and why") {
  Workspace const here;
  here.write("c.json", R"({"model": {"preset": "llama-2-13b", "seq_len": 4096},
      "batch": {"sequences": 64}, "train": {"precision": "bf16"},
      "cluster": {"hardware": "a100-sxm-40gb", "nodes": 2, "gpus_per_node": 8}})");
  Outcome const table = here.copus("plan c.json --top 3");
  CAPTURE(table.out, table.err);
  CHECK(table.code == 0);
  for (const char* expected :
       {"a100-sxm-40gb", "MFU %", "more that fit", "best: dp", "bubble", "memory of stage",
        "refused:", "too little memory", "the largest part is", "tp 5 does not divide model.ffn",
        "--critical-batch"}) {
    CAPTURE(expected);
    CHECK(table.out.find(expected) != std::string::npos);
  }
  Outcome const all = here.copus("plan c.json --all");
  CHECK(std::count(all.out.begin(), all.out.end(), '\n') >
        10 + std::count(table.out.begin(), table.out.end(), '\n'));
}

TEST_CASE("plan names every mistake at once, with what would be accepted, and exits with 2") {
  Workspace const here;
  here.write("c.json", R"({"model": {"preset": "gpt2-124m"}, "batch": {"sequences": 7},
      "parallel": {"dp": 2}, "cluster": {"hardware": "h100-sxn", "nodes": 2}})");
  Outcome const config = here.copus("plan c.json --set nokey");
  CHECK(config.code == 2);
  CHECK(config.out.empty());
  for (const char* expected : {"batch.sequences", "6 or 8", "--set nokey"}) {
    CAPTURE(expected, config.err);
    CHECK(config.err.find(expected) != std::string::npos);
  }
  Outcome const hardware =
      here.copus("plan c.json --set batch.sequences=8 --set parallel.dp=4 --set parallel.tp=1");
  CHECK(hardware.code == 2);
  for (const char* expected : {"h100-sxn", "did you mean h100-sxm", "a100-sxm-80gb", "measure",
                               "parallel: no dp x tp x pp"}) {
    CAPTURE(expected, hardware.err);
    CHECK(hardware.err.find(expected) != std::string::npos);
  }
  CHECK(here.copus("plan").code == 2);
  CHECK(here.copus("plan c.json --world 0").code == 2);
  CHECK(here.copus("plan c.json --critical-batch -3").code == 2);
}

TEST_CASE("plan reads a hardware profile, and names what is wrong in one") {
  Workspace const here;
  here.write("box.json", R"({"name": "box", "source": "a test",
      "matrix": {"fp32": {"peak_flops": 1e12, "efficiency": 1.0}},
      "attention": {"forward": 1.0, "backward": 1.0},
      "memory": {"bytes_per_second": 1e15, "bytes": 1e12},
      "inside": {"latency_seconds": 0, "bytes_per_second": 1e15}})");
  here.write("c.json", kSmall);
  std::string const with_box =
      "c.json --set cluster.hardware=box.json --world 1 "
      "--set parallel.recompute=none --set batch.micro=16";
  Json const plan = planned(here, with_box);
  // One micro-batch of 512 tokens; 2 FLOPs a weight forward, 4 backward; 7 causal score products.
  double const weights = 4 * (64 * 64 * 2 + 2 * 64 * 32 + 3 * 64 * 128) + 300 * 64;
  double const flops = 512 * (6 * weights + 4 * 7 * 32 * 64);
  // What streams at 1e15 B/s is a thousandth of it at most.
  CHECK(plan.at("candidates").at(0).at("step_seconds") == Approx(flops / 1e12).epsilon(0.01));
  Outcome const half = here.copus("plan " + with_box + " --set train.precision=bf16");
  CHECK(half.code == 2);
  CHECK(half.err.find("train.precision") != std::string::npos);
  here.write("bad.json", R"({"name": "bad", "memry": {}})");
  Outcome const bad = here.copus("plan c.json --set cluster.hardware=bad.json");
  CHECK(bad.code == 2);
  CHECK(bad.err.find("bad.json: memry: unknown; did you mean memory") != std::string::npos);
  CHECK(bad.err.find("matrix.fp32.peak_flops: missing") != std::string::npos);
}

TEST_CASE("every configuration in configs/clusters plans") {
  Workspace const here;
  int count = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(COPUS_TEST_DIR "/../configs/clusters")) {
    Json const plan = planned(here, "'" + entry.path().string() + "'");
    CAPTURE(entry.path());
    REQUIRE_FALSE(plan.at("candidates").empty());
    CHECK(plan.at("candidates").at(0).at("feasible") == true);
    ++count;
  }
  CHECK(count >= 5);
}
