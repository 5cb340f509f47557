// Switches and signals through the binary: what a user writes, sees and gets.
#include <signal.h>

#include <catch2/catch.hpp>
#include <cmath>

#include "support/command.h"
#include "support/reference.h"

using copus::test::Outcome;
using copus::test::Reference;
using copus::test::Workspace;
using nlohmann::json;

namespace {

void prepare(const Workspace& here, const Reference& reference) {
  REQUIRE(here.copus("import '" + reference.directory + "' --out model").code == 0);
  REQUIRE(here.copus("prepare --tokenizer bytes --out data '" + reference.directory + "/text.txt'")
              .code == 0);
  here.write(
      "c.json",
      R"({"model": {"from": "model", "seq_len": 32}, "data": {"train": "data", "shuffle": false},
      "batch": {"sequences": 8, "micro": 1}, "optimizer": {"lr": 1e-3, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8,
      "weight_decay": 0.1, "clip": 1.0}, "train": {"tokens": 2048},
      "parallel": {"dp": 2, "tp": 2, "pp": 1, "zero": 1},
      "adapt": {"script": [{"step": 1, "tp": 1, "pp": 2}, {"step": 2, "dp": 1, "tp": 2},
        {"step": 3, "dp": 4, "tp": 1, "pp": 1}, {"tokens": 1024, "dp": 1}, {"step": 5, "tp": 2},
        {"step": 6, "dp": 2, "tp": 1, "zero": 0}, {"step": 7, "tp": 2, "zero": 1}]}, "run_dir": "run"})");
}

void compare(const std::vector<json>& metrics, const Reference& reference) {
  std::size_t step = 0;
  for (const json& line : metrics) {
    if (line.contains("event")) continue;
    double const loss = reference.values["train"]["losses"][step];
    double const norm = reference.values["train"]["grad_norms"][step];
    CHECK(std::abs(line["loss"].get<double>() - loss) < 2e-5 * loss);
    CHECK(std::abs(line["grad_norm"].get<double>() - norm) < 2e-4 * norm);
    ++step;
  }
  CHECK(step == 8);
}

}  // namespace

TEST_CASE("adapt.script switches the layout after the steps it names, and the losses stay") {
  for (const char* name : copus::test::kReferenceNames) {
    CAPTURE(name);
    Reference const reference(name);
    Workspace const here;
    prepare(here, reference);
    Outcome const trained = here.copus("train c.json --ranks 4 --threads 1");
    INFO(trained.err);
    REQUIRE(trained.code == 0);
    std::vector<json> const metrics = here.metrics("run");
    compare(metrics, reference);
    std::vector<int> at;
    for (const json& line : metrics) {
      if (line.value("event", "") != "reshard") continue;
      at.push_back(line["step"]);
      CHECK(line["state_hash"].get<std::string>().size() == 16);
      double sum = 0.0;
      for (const char* phase : {"plan", "mesh", "allocate", "exchange", "verify", "swap"})
        sum += line["seconds"][phase].get<double>();
      CHECK(sum <= line["seconds"]["total"].get<double>());
      CHECK(line["bytes_moved"].get<std::int64_t>() + line["bytes_local"].get<std::int64_t>() > 0);
    }
    CHECK(at == std::vector<int>{1, 2, 3, 4, 5, 6, 7});
    // The step after a switch runs in what it switched to.
    std::vector<std::vector<int>> layouts;
    for (const json& line : metrics) {
      if (!line.contains("event")) layouts.push_back({line["dp"], line["tp"], line["pp"]});
    }
    CHECK(layouts == std::vector<std::vector<int>>{{2, 2, 1},
                                                   {2, 1, 2},
                                                   {1, 2, 2},
                                                   {4, 1, 1},
                                                   {1, 1, 1},
                                                   {1, 2, 1},
                                                   {2, 1, 1},
                                                   {2, 2, 1}});
  }
}

TEST_CASE(
    "R10: half a run on one rank, resumed on four with ZeRO-1 and back, keeps the reference") {
  for (const char* name : copus::test::kReferenceNames) {
    CAPTURE(name);
    Reference const reference(name);
    Workspace const here;
    prepare(here, reference);
    std::string const plain = "train c.json --threads 1 --set adapt.script='[]' ";
    std::string const one = "--set parallel.dp=1 --set parallel.tp=1 ";
    REQUIRE(here.copus(plain + one + "--set train.tokens=1024").code == 0);
    Outcome const four = here.copus(plain + "--ranks 4 --resume --set train.tokens=1536");
    INFO(four.err);
    REQUIRE(four.code == 0);
    REQUIRE(here.copus(plain + one + "--resume").code == 0);
    compare(here.metrics("run"), reference);
  }
}

TEST_CASE("a script that the model, a batch or the world cannot follow is refused at the start") {
  Reference const reference("llama-tied");
  Workspace const here;
  prepare(here, reference);
  Outcome const outcome = here.copus(
      "train c.json --ranks 4 --set adapt.script='[{\"step\": 1, \"dp\": 8}, {\"step\": 2, \"dp\": "
      "1, "
      "\"tp\": 3}]'");
  CHECK(outcome.code == 2);
  CAPTURE(outcome.err);
  CHECK(outcome.err.find(
            "adapt.script[0]: parallel: dp 8 x tp 2 x pp 1 is 16 ranks, the world has 4") !=
        std::string::npos);
  CHECK(outcome.err.find("adapt.script[1]: ") != std::string::npos);
  CHECK(!here.has("run"));
}

TEST_CASE(
    "a batch that the script changes moves the learning rate by batch_rule, and verify follows") {
  Reference const reference("llama-tied");
  Workspace const here;
  prepare(here, reference);
  Outcome const trained = here.copus(
      "train c.json --ranks 2 --set parallel.tp=1 --set batch_rule.lr=sqrt --set train.tokens=8192 "
      "--set adapt.mode=log --set gns.every_steps=1 --set adapt.script='[{\"step\": 4, \"batch\": "
      "32, "
      "\"dp\": 1, \"micro\": 4}]'");
  INFO(trained.err);
  REQUIRE(trained.code == 0);
  int verified = 0;
  std::int64_t samples = 0;
  for (const json& line : here.metrics("run")) {
    if (line.value("event", "") == "verify") {
      ++verified;
      CHECK((line["before"].get<double>() > 0.0 && line["measured"].get<double>() > 0.0));
    }
    if (line.contains("event")) continue;
    bool const early = line["step"].get<int>() <= 4;
    CHECK(line["batch"] == (early ? 8 : 32));
    CHECK(line["lr"].get<double>() == Approx(early ? 1e-3 : 2e-3));
    CHECK(line["samples"].get<std::int64_t>() == samples + line["batch"].get<std::int64_t>());
    samples = line["samples"];
    CHECK(line["gns"]["trace_step"].is_number());
    if (line["step"].get<int>() < 8) CHECK(line["gns"]["state"] == "cold");
  }
  CHECK(verified == 1);
}

TEST_CASE(
    "C13: SIGTERM, SIGINT and SIGUSR1 save and end with code 3, in training, evaluation, saves and "
    "changes of layout") {
  Reference const reference("llama-tied");
  Workspace const here;
  prepare(here, reference);
  json config = json::parse(here.read("c.json"));
  config["adapt"]["script"] = json::array();
  here.write("quiet.json", config.dump());
  // The shell waits for the run's own words, then sends the signal to the run it started.
  auto const run = [&](const std::string& signal, const std::string& options,
                       const std::string& words, const std::string& more = "") {
    std::string const command =
        "--version >/dev/null; rm -rf run out.txt; touch out.txt; '" COPUS_BINARY
        "' train quiet.json --ranks 2 --set parallel.tp=1 "
        "--set data.shuffle=true --set train.tokens=1B " +
        options + " >out.txt 2>&1 & pid=$!; tries=0; until grep -q '" + words +
        "' out.txt || [ $((tries+=1)) -gt 600 ]; do sleep 0.1; done; kill -" + signal + " $pid; " +
        more + " wait $pid";
    return here.copus(command).code;
  };
  for (const char* signal : {"TERM", "INT", "USR1"}) {
    CAPTURE(signal);
    CHECK(run(signal, "", "step      3 ") == 3);
    std::vector<json> const metrics = here.metrics("run");
    CHECK(metrics.back()["event"] == "stop");
    CHECK(metrics.back()["reason"] == std::string("SIG") + signal);
    std::int64_t const last = metrics.back()["step"];
    CHECK(here.has("run/checkpoints/step-" + std::string(8 - std::to_string(last).size(), '0') +
                   std::to_string(last)));
  }
  // With nothing but evaluation between two steps.
  CHECK(run("TERM", "--set 'data.val=data/*' --set train.eval_every_tokens=256",
            "eval at step 1") == 3);
  CHECK(here.metrics("run").back()["event"] == "stop");
  // With a save after every step, waited for or beside training.
  for (const char* async : {"false", "true"}) {
    CAPTURE(async);
    CHECK(run("USR1",
              "--set checkpoint.every_tokens=256 --set checkpoint.async=" + std::string(async),
              "checkpoint run/checkpoints/step-00000002") == 3);
    json const stop = here.metrics("run").back();
    CHECK(stop["event"] == "stop");
    json const kept = json::parse(here.copus("inspect run --json").out)["checkpoints"];
    CHECK(kept[0]["step"] == stop["step"]);
    for (const json& checkpoint : kept) CHECK(checkpoint["complete"] == true);
  }
  // With a change of layout after every step.
  for (int step = 1; step <= 5000; ++step) {
    config["adapt"]["script"].push_back(
        {{"step", step}, {"dp", step % 2 == 0 ? 2 : 1}, {"pp", step % 2 == 0 ? 1 : 2}});
  }
  here.write("quiet.json", config.dump());
  CHECK(run("INT", "", "switched in") == 3);
  std::vector<json> const switches = here.metrics("run");
  CHECK(switches.back()["event"] == "stop");
  CHECK(switches.back()["step"].get<int>() < 5000);
  config["adapt"]["script"] = json::array();
  here.write("quiet.json", config.dump());
  // A step of seconds: two signals at once are one request, as timeout sends it; a second request
  // does not wait for the step.
  std::string const slow = "--set batch.sequences=8192 --set batch.micro=1";
  CHECK(run("TERM", slow, "weight hash", "kill -TERM $pid;") == 3);
  CHECK(run("TERM", slow, "weight hash", "sleep 1; kill -TERM $pid;") == 128 + SIGTERM);
}

TEST_CASE("no thread that computes is ever interrupted by a signal that asks to stop") {
  // A signal's frame on the stack of a generated matrix product destroyed memory.
  Reference const reference("llama-tied");
  Workspace const here;
  prepare(here, reference);
  // Counts the threads by what SIGTERM (bit 14) and SIGINT (bit 1) would do to them.
  Outcome const outcome = here.copus(
      "--version >/dev/null; : >out.txt; '" COPUS_BINARY
      "' train c.json --ranks 2 --threads 2 --set adapt.script='[]' --set data.shuffle=true --set "
      "parallel.tp=1 --set train.tokens=1B >out.txt 2>&1 & pid=$!; tries=0; until grep -q 'step    "
      "  3 ' "
      "out.txt || [ $((tries+=1)) -gt 600 ]; do sleep 0.1; done; all=0; open=0; for task in "
      "/proc/$pid/task/*; do all=$((all+1)); mask=0x$(sed -n 's/^SigBlk:[[:space:]]*//p' "
      "$task/status); "
      "[ $((mask & 0x4002)) -eq $((0x4002)) ] || open=$((open+1)); done; kill -TERM $pid; wait "
      "$pid; "
      "echo code $? threads $all open $open");
  INFO(outcome.out);
  int code = 0, all = 0, open = 0;
  REQUIRE(std::sscanf(outcome.out.c_str(), "code %d threads %d open %d", &code, &all, &open) == 3);
  CHECK(code == 3);
  CHECK(all >= 4);
  CHECK(open == 1);  // the one that waits for them
}
