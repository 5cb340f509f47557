// Going on: what a resume needs, refuses and keeps.
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>

#include "support/command.h"
#include "support/reference.h"
#include "support/short_run.h"

using copus::test::Outcome;
using copus::test::Reference;
using copus::test::short_run;
using copus::test::steps_of;
using copus::test::Workspace;
using nlohmann::json;

namespace {

void flip_a_bit(const std::string& path, std::streamoff from_end) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-from_end, std::ios::end);
  char const byte = static_cast<char>(file.get() ^ 1);
  file.seekp(-from_end, std::ios::end);
  file.put(byte);
}

// A model of `layers` x 0.8M parameters over a text of 12,000 bytes.
void small_run(const Workspace& here, int layers, const std::string& model,
               const std::string& rest) {
  std::string text;
  for (int i = 0; i < 600; ++i) text += "the " + std::to_string(i * 37 % 101) + "th line of it\n";
  here.write("text.txt", text);
  REQUIRE(here.copus("prepare --tokenizer bytes --out data text.txt").code == 0);
  here.write("c.json", R"({"model": {"layers": )" + std::to_string(layers) +
                           R"(, "hidden": 256, "heads": 4, "vocab": 257, )" + model +
                           R"(}, "data": {"train": "data"}, )" + rest + "}");
}

}  // namespace

TEST_CASE("half a run on one rank and half on (2, 2, 1) with ZeRO-1 is the reference's run") {
  for (const char* name : copus::test::kReferenceNames) {
    CAPTURE(name);
    Reference const reference(name);
    Workspace const here;
    REQUIRE(
        here.copus("prepare --tokenizer bytes --out data '" + reference.directory + "/text.txt'")
            .code == 0);
    here.write("c.json", R"({"model": {"from": ")" + reference.directory +
                             R"(", "seq_len": 32}, "data": {"train": "data", "shuffle": false},
      "batch": {"sequences": 8, "micro": 2}, "optimizer": {"lr": 1e-3, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8,
      "weight_decay": 0.1, "clip": 1.0}, "train": {"tokens": 1024}, "run_dir": "run"})");
    REQUIRE(here.copus("train c.json --threads 1").code == 0);
    Outcome const resumed = here.copus(
        "train c.json --resume --threads 1 --ranks 4 --set train.tokens=2048 --set parallel.dp=2 "
        "--set parallel.tp=2 --set parallel.zero=1");
    INFO(resumed.err);
    REQUIRE(resumed.code == 0);
    std::vector<json> const steps = steps_of(here, "run");
    REQUIRE(steps.size() == 8);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      CAPTURE(i);
      CHECK(steps[i]["step"] == i + 1);
      CHECK(steps[i]["tp"] == (i < 4 ? 1 : 2));
      double const loss = reference.values["train"]["losses"][i];
      double const norm = reference.values["train"]["grad_norms"][i];
      CHECK(std::abs(steps[i]["loss"].get<double>() - loss) < 2e-5 * loss);
      CHECK(std::abs(steps[i]["grad_norm"].get<double>() - norm) < 2e-4 * norm);
    }
  }
}

TEST_CASE(
    "R4, R6, R7: dropout and the order of samples go on where they were, epochs further and on "
    "other ranks") {
  Workspace const here;
  // 600 lines make about 390 windows of 32: an epoch lasts 49 steps.
  small_run(here, 2, R"("family": "gpt2", "ffn": 256, "seq_len": 32, "dropout": 0.1)",
            R"("batch": {"sequences": 8, "micro": 4}, "train": {"tokens": 20480})");
  REQUIRE(here.copus("train c.json --threads 1 --run-dir whole").code == 0);
  REQUIRE(here.copus("train c.json --threads 1 --run-dir half --set train.tokens=14336").code == 0);
  Outcome const resumed = here.copus("train c.json --threads 1 --run-dir half --resume");
  INFO(resumed.err);
  REQUIRE(resumed.code == 0);
  std::vector<json> const whole = steps_of(here, "whole"), half = steps_of(here, "half");
  REQUIRE(half.size() == 80);
  REQUIRE(whole.size() == 80);
  for (std::size_t i = 0; i < half.size(); ++i) CHECK(half[i]["loss"] == whole[i]["loss"]);

  REQUIRE(here.copus("train c.json --threads 1 --run-dir cut --set train.tokens=14336").code == 0);
  Outcome const moved = here.copus(
      "train c.json --threads 1 --run-dir cut --resume --ranks 4 --set parallel.pp=2 --set "
      "parallel.dp=2");
  INFO(moved.err);
  REQUIRE(moved.code == 0);
  std::vector<json> const cut = steps_of(here, "cut");
  REQUIRE(cut.size() == 80);
  // Another sample or mask would show in the second decimal.
  for (std::size_t i = 0; i < cut.size(); ++i)
    CHECK(cut[i]["loss"].get<double>() == Approx(whole[i]["loss"].get<double>()).epsilon(1e-4));
}

TEST_CASE("R19: fifty saves beside training take no more memory than the first few") {
  Workspace const here;
  small_run(here, 1, R"("family": "llama", "ffn": 768, "seq_len": 32)",
            R"("batch": {"sequences": 1}, "train": {"tokens": 1920},
               "checkpoint": {"every_tokens": 32, "keep": 2, "async": true})");
  for (const char* ranks : {"",
                            " --ranks 2 --set parallel.dp=2 --set batch.sequences=2 --set "
                            "checkpoint.every_tokens=64 --set train.tokens=3840"}) {
    std::filesystem::remove_all(here / "run");
    Outcome const trained =
        here.copus("train c.json --threads 1 --run-dir run" + std::string(ranks));
    INFO(trained.err);
    REQUIRE(trained.code == 0);
    std::vector<json> const steps = steps_of(here, "run");
    REQUIRE(steps.size() == 60);
    double const early = steps[9]["peak_memory_bytes"], late = steps[59]["peak_memory_bytes"];
    // One snapshot is 3 x 4 bytes of a million parameters: a leak of a tenth of one in each save
    // would be 60 MB.
    CHECK(late - early < 6e6);
  }
}

TEST_CASE("R20: a resume needs no more memory than the run itself") {
  Workspace const here;
  small_run(here, 12, R"("family": "llama", "ffn": 768, "seq_len": 32)",
            R"("batch": {"sequences": 1}, "train": {"tokens": 64})");
  REQUIRE(here.copus("train c.json --threads 1 --run-dir run").code == 0);
  Outcome const resumed =
      here.copus("train c.json --threads 1 --run-dir run --resume --set train.tokens=128");
  INFO(resumed.err);
  REQUIRE(resumed.code == 0);
  std::vector<json> const steps = steps_of(here, "run");
  REQUIRE(steps.size() == 4);
  double const first = steps[1]["peak_memory_bytes"], second = steps[3]["peak_memory_bytes"];
  // Another copy of the moments would be 80 MB, of the weights 40 MB.
  CHECK(second < first + 10e6);
}

TEST_CASE("a second process is kept out of a run directory, and is let in when the first is gone") {
  Workspace const here;
  short_run(here);
  std::string const started =
      "--version >/dev/null; : >out.txt; '" COPUS_BINARY
      "' train c.json --resume --threads 1 --set train.tokens=1B >out.txt 2>&1 & pid=$!; tries=0; "
      "until grep -q 'step      6 ' out.txt || [ $((tries+=1)) -gt 600 ]; do sleep 0.1; done; "
      "kill -STOP $pid; ";
  Outcome const second = here.copus(
      started + "'" COPUS_BINARY
                "' train c.json --resume --threads 1 --set train.tokens=4096 2>&1; code=$?; "
                "kill -9 $pid; wait $pid 2>/dev/null; exit $code");
  INFO(second.out);
  CHECK(second.code == 2);
  CHECK(second.out.find("another process trains in it (process ") != std::string::npos);
  Outcome const after = here.copus("train c.json --resume --threads 1 --set train.tokens=4096");
  INFO(after.err);
  CHECK(after.code == 0);
  std::vector<json> const steps = steps_of(here, "run");
  for (std::size_t i = 0; i < steps.size(); ++i) CHECK(steps[i]["step"] == i + 1);
}

TEST_CASE("a resume points `latest` to the checkpoint that it goes on from") {
  Workspace const here;
  short_run(here);
  std::filesystem::path const link = here / "run/checkpoints/latest";
  for (const char* stale : {"step-00000001", ""}) {
    std::filesystem::remove(link);
    if (*stale != 0) std::filesystem::create_symlink(stale, link);
    REQUIRE(here.copus("train c.json --resume --threads 1").code == 0);
    CHECK(std::filesystem::read_symlink(link) == "step-00000004");
  }
}

TEST_CASE("processes that a launcher means as ranks, and that see no such world, do not train") {
  Workspace const here;
  short_run(here);
  struct Launcher {
    const char *variables, *typed;
  };
  for (const Launcher& launcher :
       {Launcher{"SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=1", "srun --mpi=pmix -n 4"},
        Launcher{"OMPI_COMM_WORLD_SIZE=4", "mpirun -n 4"},
        Launcher{"PMI_SIZE=4 PMI_RANK=1", "mpirun -n 4"}}) {
    Outcome const alone =
        here.copus("--version >/dev/null; env " + std::string(launcher.variables) +
                   " '" COPUS_BINARY "' train c.json --run-dir apart");
    INFO(alone.err);
    CHECK(alone.code == 2);
    CHECK(alone.err.find(launcher.typed) != std::string::npos);
    CHECK(!here.has("apart"));
  }
}

TEST_CASE("a run goes on from its own checkpoint when the model it started from is gone") {
  Workspace const here;
  short_run(here);
  std::filesystem::remove_all(here / "source");
  Outcome const resumed = here.copus("train c.json --resume --threads 1 --set train.tokens=2048");
  INFO(resumed.err);
  CHECK(resumed.code == 0);
  CHECK(here.metrics("run").back()["step"] == 8);
}

TEST_CASE(
    "R16: with every checkpoint damaged a resume is refused, and the record of the run stays") {
  Workspace const here;
  short_run(here);
  std::string const metrics = here.read("run/metrics.jsonl");
  flip_a_bit(here / "run/checkpoints/step-00000004/model.safetensors", 100);
  for (const char* ranks : {"", " --ranks 2"}) {
    Outcome const resumed = here.copus("train c.json --resume --threads 1 --set train.tokens=2048" +
                                       std::string(ranks));
    CHECK(resumed.code == 2);
    CHECK(resumed.err.find("step-00000004") != std::string::npos);
    CHECK(here.read("run/metrics.jsonl") == metrics);
  }
}

TEST_CASE(
    "R16: a checkpoint that was passed over, and can be read again, is not gone on from later") {
  Workspace const here;
  short_run(here);
  REQUIRE(here.copus("train c.json --resume --threads 1 --set train.tokens=4096").code == 0);
  std::string const damaged = "run/checkpoints/step-00000016";
  flip_a_bit(here / (damaged + "/model.safetensors"), 100);
  // It trains on from step 4, to less than it had come to.
  Outcome const resumed = here.copus("train c.json --resume --threads 1 --set train.tokens=2048");
  INFO(resumed.err);
  CHECK(resumed.code == 0);
  CHECK(resumed.err.find("set aside as " + damaged + ".damaged") != std::string::npos);
  flip_a_bit(here / (damaged + ".damaged/model.safetensors"), 100);
  Outcome const again = here.copus("train c.json --resume --threads 1 --set train.tokens=3072");
  INFO(again.err);
  CHECK(again.code == 0);
  CHECK(again.err.find("resumed from run/checkpoints/step-00000008") != std::string::npos);
  std::vector<json> const steps = steps_of(here, "run");
  REQUIRE(steps.size() == 12);
  for (std::size_t i = 0; i < steps.size(); ++i) CHECK(steps[i]["step"] == i + 1);
}

TEST_CASE("a resume with another model is refused before any checkpoint or log is touched") {
  Workspace const here;
  short_run(here);
  here.write("small.json", R"({"model": {"family": "llama", "layers": 1, "hidden": 16, "heads": 2,
    "kv_heads": 2, "ffn": 32, "vocab": 257, "seq_len": 32}, "data": {"train": "data"},
    "batch": {"sequences": 8}, "train": {"tokens": 1024}, "checkpoint": {"every_tokens": 256},
    "run_dir": "small"})");
  REQUIRE(here.copus("train small.json --threads 1").code == 0);
  std::string const log = here.read("small/log.txt");
  flip_a_bit(here / "small/checkpoints/step-00000004/model.safetensors", 100);
  Outcome const refused = here.copus(
      "train small.json --resume --threads 1 --set checkpoint.keep=1 --set model.hidden=32");
  INFO(refused.err);
  CHECK(refused.code == 2);
  CHECK(refused.err.find("model.hidden: 32 is not accepted") != std::string::npos);
  for (const char* name : {"step-00000004", "step-00000003", "step-00000002"})
    CHECK(here.has(std::string("small/checkpoints/") + name));
  CHECK(here.read("small/log.txt") == log);
}

TEST_CASE("a resume says that its data has changed, and that its end lies behind it") {
  Workspace const here;
  short_run(here);
  Outcome const same = here.copus("train c.json --resume --threads 1 --set train.tokens=512");
  CHECK(same.code == 0);
  CHECK(same.err.find("not the tokens") == std::string::npos);
  CHECK(same.err.find("train.tokens 512 lies behind the 1024 tokens") != std::string::npos);
  here.write("other.txt", std::string(3000, 'a') + std::string(3000, 'b'));
  std::filesystem::remove_all(here / "data");
  REQUIRE(here.copus("prepare --tokenizer bytes --out data other.txt").code == 0);
  Outcome const changed = here.copus("train c.json --resume --threads 1 --set train.tokens=2048");
  INFO(changed.err);
  CHECK(changed.code == 0);
  CHECK(changed.err.find("data.train: not the tokens that run/checkpoints/step-00000004") !=
        std::string::npos);
}

TEST_CASE("a folder that holds no run is not resumed, and its files stay") {
  Workspace const here;
  short_run(here);
  std::filesystem::create_directory(here / "other");
  here.write("other/config.json", "hi");
  Outcome const resumed = here.copus("train c.json --run-dir other --resume");
  CHECK(resumed.code == 2);
  CHECK(here.read("other/config.json") == "hi");
  std::filesystem::remove(here / "run/metrics.jsonl");
  std::filesystem::create_directory(here / "run/metrics.jsonl");
  CHECK(here.copus("train c.json --resume").code == 2);
}

TEST_CASE("a shard with one flipped bit is named before anything is trained on it") {
  Workspace const here;
  short_run(here);
  flip_a_bit(here / "data/train-00000.bin", 100);
  Outcome const trained = here.copus("train c.json --run-dir again");
  CHECK(trained.code == 2);
  CHECK(trained.err.find("train-00000.bin") != std::string::npos);
  CHECK(trained.err.find("checksum") != std::string::npos);
  CHECK_FALSE(here.has("again"));
}

TEST_CASE(
    "the automatic micro-batch fits interleaved stages, and a run stops at its limit of skipped "
    "steps") {
  Workspace const here;
  short_run(here);
  Outcome const interleaved = here.copus(
      "train c.json --run-dir inter --ranks 2 --threads 1 --set parallel.pp=2 --set "
      "parallel.virtual_stages=2");
  INFO(interleaved.err);
  CHECK(interleaved.code == 0);
  Outcome const wild = here.copus(
      "train c.json --run-dir wild --threads 1 --set optimizer.lr=1e30 --set "
      "train.max_skipped_steps=3 --set train.tokens=64K");
  CHECK(wild.code == 1);
  int skips = 0;
  for (const json& line : here.metrics("wild")) skips += line.value("event", "") == "skip" ? 1 : 0;
  CHECK(skips == 3);
}
