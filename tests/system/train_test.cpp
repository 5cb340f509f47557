// A run through the binary: text in, shards, training, evaluation, resume.
#include <catch2/catch.hpp>
#include <cmath>

#include "support/command.h"

using copus::test::Outcome;
using copus::test::Workspace;
using nlohmann::json;

namespace {

// Two dozen short documents with something to learn in them.
std::string some_text(int document) {
  std::string text;
  for (int i = 0; i < 60; ++i)
    text += "line " + std::to_string((i * 7 + document) % 10) + " of the song\n";
  return text;
}

const char* const kConfig = R"({
  "model": {"family": "llama", "layers": 2, "hidden": 32, "heads": 4, "kv_heads": 2, "ffn": 64, "vocab": 257, "seq_len": 32},
  "data": {"train": "shards", "val": "shards"},
  "batch": {"sequences": 8, "micro": 4},
  "optimizer": {"lr": 1e-2},
  "schedule": {"kind": "cosine", "warmup_tokens": 1024},
  "train": {"tokens": 10240, "eval_every_tokens": 5120},
  "checkpoint": {"every_tokens": 5120},
  "run_dir": "run"
})";

void prepare(const Workspace& here) {
  std::string files;
  for (int i = 0; i < 24; ++i) {
    here.write("d" + std::to_string(i) + ".txt", some_text(i));
    files += " d" + std::to_string(i) + ".txt";
  }
  here.write("config.json", kConfig);
  Outcome const made =
      here.copus("prepare --tokenizer bytes --val-fraction 0.1 --out shards" + files);
  INFO(made.err);
  REQUIRE(made.code == 0);
}

std::vector<json> steps_of(const std::vector<json>& metrics) {
  std::vector<json> steps;
  for (const json& line : metrics) {
    if (!line.contains("event")) steps.push_back(line);
  }
  return steps;
}

std::vector<json> events_of(const std::vector<json>& metrics, const std::string& name) {
  std::vector<json> events;
  for (const json& line : metrics) {
    if (line.value("event", "") == name) events.push_back(line);
  }
  return events;
}

}  // namespace

TEST_CASE("text to shards to a trained, evaluated, saved model") {
  Workspace const here;
  prepare(here);
  Outcome const trained = here.copus("train config.json --threads 1");
  INFO(trained.err);
  REQUIRE(trained.code == 0);
  std::vector<json> const metrics = here.metrics("run");
  std::vector<json> const steps = steps_of(metrics);
  REQUIRE(steps.size() == 40);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const json& s = steps[i];
    CHECK(s["step"] == i + 1);
    CHECK(s["tokens"] == (i + 1) * 8 * 32);
    CHECK(s["samples"] == (i + 1) * 8);
    CHECK(s["batch"] == 8);  // U9: the global batch, not the micro-batch
    CHECK(s["micro_batch"] == 4);
    // D16: what was waited for data stands apart from the step's seconds.
    for (const char* key : {"loss", "grad_norm", "lr", "seconds", "tokens_per_second", "mfu",
                            "data_seconds", "peak_memory_bytes"}) {
      CHECK(s[key].is_number());
    }
    CHECK((s["dp"] == 1 && s["tp"] == 1 && s["pp"] == 1));
  }
  CHECK(steps.front()["loss"].get<double>() > 5.0);  // ln 257 = 5.55
  CHECK(steps.back()["loss"].get<double>() < 0.7 * steps.front()["loss"].get<double>());
  CHECK(events_of(metrics, "run").size() == 1);
  std::vector<json> const evals = events_of(metrics, "eval");
  REQUIRE(evals.size() == 2);  // U10
  CHECK(evals[1]["loss"].get<double>() < evals[0]["loss"].get<double>());
  CHECK(events_of(metrics, "checkpoint").size() == 2);
  CHECK(events_of(metrics, "stop").size() == 1);

  Outcome const evaluated =
      here.copus("eval run/checkpoints/latest --data 'shards/val-*' --seq-len 32 --json");
  INFO(evaluated.err);
  REQUIRE(evaluated.code == 0);
  json const result = json::parse(evaluated.out);
  // The same weights over the same windows, in micro-batches of another size: fp32 rounding.
  CHECK(result["loss"].get<double>() == Approx(evals[1]["loss"].get<double>()).epsilon(1e-5));
  CHECK(result["perplexity"].get<double>() == Approx(std::exp(result["loss"].get<double>())));

  Outcome const again = here.copus("train config.json");
  CHECK(again.code == 2);
  CHECK(again.err.find("--resume") != std::string::npos);
  CHECK(here.metrics("run").size() == metrics.size());

  // The resolved configuration repeats the run.
  Outcome const repeated = here.copus("train run/config.json --run-dir repeat --threads 1");
  INFO(repeated.err);
  REQUIRE(repeated.code == 0);
  std::vector<json> const other = steps_of(here.metrics("repeat"));
  REQUIRE(other.size() == steps.size());
  for (std::size_t i = 0; i < steps.size(); ++i) CHECK(other[i]["loss"] == steps[i]["loss"]);
}

TEST_CASE("R8, R9, S5: half a run and its resume equal the whole run, bit for bit") {
  Workspace const here;
  prepare(here);
  REQUIRE(here.copus("train config.json --run-dir whole --threads 1").code == 0);
  // Stopped in the middle: the schedule still counts towards 10240 tokens.
  REQUIRE(here.copus("train config.json --run-dir half --threads 1 --set train.tokens=5120 --set "
                     "schedule.decay_tokens=10240")
              .code == 0);
  Outcome const resumed = here.copus("train config.json --run-dir half --resume --threads 1");
  INFO(resumed.err);
  REQUIRE(resumed.code == 0);
  std::vector<json> const whole = steps_of(here.metrics("whole")),
                          half = steps_of(here.metrics("half"));
  REQUIRE(half.size() == whole.size());
  for (std::size_t i = 0; i < whole.size(); ++i) {
    CHECK(half[i]["step"] == i + 1);
    CHECK(half[i]["loss"] == whole[i]["loss"]);
    CHECK(half[i]["grad_norm"] == whole[i]["grad_norm"]);
    CHECK(half[i]["lr"] == whole[i]["lr"]);
  }
  CHECK(here.read("half/checkpoints/latest/model.safetensors") ==
        here.read("whole/checkpoints/latest/model.safetensors"));
}

TEST_CASE("evaluation has no effect on training") {
  Workspace const here;
  prepare(here);
  REQUIRE(
      here.copus("train config.json --run-dir often --threads 1 --set train.eval_every_tokens=256")
          .code == 0);
  REQUIRE(
      here.copus("train config.json --run-dir never --threads 1 --set train.eval_every_tokens=0")
          .code == 0);
  std::vector<json> const often = steps_of(here.metrics("often")),
                          never = steps_of(here.metrics("never"));
  REQUIRE(often.size() == never.size());
  for (std::size_t i = 0; i < often.size(); ++i) CHECK(often[i]["loss"] == never[i]["loss"]);
}

TEST_CASE(
    "a batch schedule in tokens grows the batch at its token and D11: epochs end the run or wrap "
    "with a line") {
  Workspace const here;
  prepare(here);
  REQUIRE(here.copus("train config.json --threads 1 --set 'batch.schedule=0:4 2560:8'").code == 0);
  std::vector<json> const steps = steps_of(here.metrics("run"));
  CHECK(steps.front()["batch"] == 4);
  CHECK(steps[19]["batch"] == 4);  // starts at 19 * 128 = 2432 tokens
  CHECK(steps[20]["batch"] == 8);  // starts at 2560
  CHECK(steps.back()["tokens"] == 10240);

  Outcome const wrapped =
      here.copus("train config.json --run-dir long --threads 1 --set train.tokens=60K");
  CHECK(wrapped.code == 0);
  CHECK(wrapped.err.find("pass 2") != std::string::npos);
  Outcome const once = here.copus(
      "train config.json --run-dir once --threads 1 --set train.tokens=60K --set data.epochs=1");
  CHECK(once.err.find("data.epochs 1") != std::string::npos);
  CHECK(steps_of(here.metrics("once")).size() < steps_of(here.metrics("long")).size());
}

TEST_CASE(
    "C21: several ranks give the numbers of one, and the record says who computed and who waited") {
  Workspace const here;
  prepare(here);
  REQUIRE(here.copus("train config.json --run-dir one --threads 1").code == 0);
  Outcome const several = here.copus(
      "train config.json --run-dir four --ranks 4 --threads 1 --set batch.micro=2 --set "
      "parallel.dp=2 --set parallel.tp=2 "
      "--set parallel.zero=1");
  INFO(several.err);
  REQUIRE(several.code == 0);
  std::vector<json> const one = steps_of(here.metrics("one")),
                          four = steps_of(here.metrics("four"));
  REQUIRE(four.size() == one.size());
  for (std::size_t i = 0; i < one.size(); ++i) {
    CHECK(four[i]["loss"].get<double>() == Approx(one[i]["loss"].get<double>()).epsilon(1e-4));
    CHECK((four[i]["dp"] == 2 && four[i]["tp"] == 2 && four[i]["pp"] == 1));
    for (const char* what : {"compute", "communication", "data"}) {
      json const& spread = four[i]["rank_seconds"][what];
      CHECK(spread["min"].get<double>() <= spread["median"].get<double>());
      CHECK(spread["median"].get<double>() <= spread["max"].get<double>());
      CHECK(spread["max_rank"].get<int>() >= 0);
      CHECK(spread["max_rank"].get<int>() < 4);
    }
  }
  CHECK(events_of(here.metrics("one"), "run")[0]["weight_hash"] ==
        events_of(here.metrics("four"), "run")[0]["weight_hash"]);

  // R1, R10: what four ranks saved, two stages go on with, and one evaluates.
  Outcome const resumed = here.copus(
      "train config.json --run-dir four --resume --ranks 2 --threads 1 --set parallel.pp=2 --set "
      "train.tokens=12800");
  INFO(resumed.err);
  REQUIRE(resumed.code == 0);
  std::vector<json> const all = steps_of(here.metrics("four"));
  REQUIRE(all.size() == 50);
  for (std::size_t i = 0; i < all.size(); ++i) CHECK(all[i]["samples"] == (i + 1) * 8);
}

TEST_CASE(
    "L9, C18: a layout that the world cannot hold, or a model cannot be cut into, is refused with "
    "what to type") {
  Workspace const here;
  prepare(here);
  Outcome const large = here.copus("train config.json --set parallel.dp=2 --set parallel.tp=2");
  CHECK(large.code == 2);
  CHECK(large.err.find(
            "mpirun -n 4 copus ..., with --oversubscribe where the processors are fewer") !=
        std::string::npos);
  CHECK(large.err.find("--ranks 4") != std::string::npos);
  Outcome const uncut = here.copus("train config.json --ranks 3 --set parallel.tp=3");
  CHECK(uncut.code == 2);
  CHECK(uncut.err.find("parallel.tp 3 does not divide model.heads 4; nearest that fits: 2 or 4") !=
        std::string::npos);
  CHECK_FALSE(here.has("run"));
  Outcome const idle =
      here.copus("train config.json --ranks 3 --threads 1 --set parallel.dp=2 --set batch.micro=2");
  CHECK(idle.code == 0);
  CHECK(idle.err.find("idle") != std::string::npos);
}
