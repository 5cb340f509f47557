// Going on: what a resume needs, refuses and keeps.
#include <catch2/catch.hpp>
#include <filesystem>

#include "support/command.h"
#include "support/reference.h"

using copus::test::Outcome;
using copus::test::Reference;
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

// A short run from a golden model, with its checkpoint.
void short_run(const Workspace& here) {
  Reference const reference("llama-tied");
  REQUIRE(here.copus("import '" + reference.directory + "' --out source").code == 0);
  REQUIRE(here.copus("prepare --tokenizer bytes --out data '" + reference.directory + "/text.txt'")
              .code == 0);
  here.write("c.json", R"({"model": {"from": "source", "seq_len": 32}, "data": {"train": "data"},
                          "batch": {"sequences": 8}, "train": {"tokens": 1024}, "run_dir": "run"})");
  Outcome const trained = here.copus("train c.json --threads 1");
  INFO(trained.err);
  REQUIRE(trained.code == 0);
}

}  // namespace

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

TEST_CASE("a folder that holds no run is not resumed, and its files stay") {
  Workspace const here;
  short_run(here);
  std::filesystem::create_directory(here / "other");
  here.write("other/config.json", "hi");
  Outcome const resumed = here.copus("train c.json --run-dir other --resume");
  CHECK(resumed.code == 2);
  CHECK(here.read("other/config.json") == "hi");
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
