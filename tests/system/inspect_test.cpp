// copus inspect: what the commands wrote is what it says.
#include <catch2/catch.hpp>
#include <cstdint>
#include <filesystem>

#include "support/command.h"
#include "support/reference.h"

using copus::test::Outcome;
using copus::test::Reference;
using copus::test::Workspace;
using nlohmann::json;

namespace {

json inspect(const Workspace& here, const std::string& path) {
  Outcome const outcome = here.copus("inspect '" + path + "' --json");
  INFO(outcome.err);
  REQUIRE(outcome.code == 0);
  return json::parse(outcome.out);
}

void flip_a_byte(const Workspace& here, const std::string& name, std::size_t from_end) {
  std::string bytes = here.read(name);
  char& byte = bytes[bytes.size() - from_end];
  byte = static_cast<char>(byte ^ 1);
  here.write(name, bytes);
}

}  // namespace

TEST_CASE("a run, its checkpoints and its shards are described, whole and damaged") {
  Workspace const here;
  Reference const reference("llama-gqa");
  REQUIRE(here.copus("prepare --tokenizer bytes --out data '" + reference.directory +
                     "/text.txt' --shard-tokens 2K")
              .code == 0);
  here.write("c.json", R"({"model": {"layers": 1, "hidden": 32, "heads": 4, "ffn": 64, "vocab": 257,
      "seq_len": 32}, "data": {"train": "data", "val": "data/*"}, "batch": {"sequences": 4},
      "train": {"tokens": 1024}, "checkpoint": {"every_tokens": 512}, "run_dir": "run"})");
  Outcome const trained = here.copus("train c.json --threads 1");
  INFO(trained.err);
  REQUIRE(trained.code == 0);

  json const run = inspect(here, "run");
  auto const metrics = here.metrics("run");
  json last;
  for (const json& line : metrics)
    if (!line.contains("event")) last = line;
  CHECK(run["kind"] == "run");
  for (const char* key : {"step", "tokens", "samples", "loss", "grad_norm", "lr", "dp"})
    CHECK(run[key] == last[key]);
  CHECK(run["steps_recorded"] == 8);
  CHECK(run["train_tokens"] == 1024);
  CHECK(run["model"]["hidden"] == 32);
  CHECK(run["stop"] == "train.tokens reached");
  CHECK(run["eval"]["step"] == 8);
  CHECK(run["problems"].empty());
  REQUIRE(run["checkpoints"].size() == 2);
  CHECK((run["checkpoints"][0]["step"] == 8 && run["checkpoints"][1]["step"] == 4));
  CHECK((run["checkpoints"][0]["complete"] == true && run["checkpoints"][1]["complete"] == true));

  json const checkpoint = inspect(here, "run/checkpoints/latest");
  CHECK(checkpoint["kind"] == "checkpoint");
  CHECK((checkpoint["complete"] == true && checkpoint["format"] == 1));
  CHECK((checkpoint["step"] == 8 && checkpoint["tokens"] == 1024));
  CHECK(checkpoint["counters"]["samples"] == 32);
  CHECK((checkpoint["optimizer"] == true && checkpoint["tokenizer"] == "bytes"));
  // Master, m and v of every parameter.
  CHECK(checkpoint["tensor_bytes"] == 3 * 4 * checkpoint["parameters"].get<std::int64_t>());
  CHECK(here.copus("inspect run/checkpoints/latest").out.find("complete       yes") !=
        std::string::npos);

  json const shard = inspect(here, "data/train-00000.bin");
  CHECK((shard["kind"] == "shard" && shard["valid"] == true));
  CHECK((shard["tokens"] == 2000 && shard["vocab"] == 257 && shard["tokenizer"] == "bytes"));
  json const data = inspect(here, "data");
  CHECK((data["kind"] == "data" && data["tokens"] == 3073 && data["documents"] == 1));
  CHECK(data["shards"].size() == 2);

  flip_a_byte(here, "run/checkpoints/step-00000008/optimizer-00001.safetensors", 1);
  CHECK(inspect(here, "run/checkpoints/latest")["complete"] == false);
  json const damaged = inspect(here, "run");
  CHECK((damaged["checkpoints"][0]["complete"] == false &&
         damaged["checkpoints"][1]["complete"] == true));
  CHECK(here.copus("inspect run").out.find("NOT COMPLETE") != std::string::npos);
  flip_a_byte(here, "data/train-00000.bin", 2);
  json const changed = inspect(here, "data/train-00000.bin");
  CHECK((changed["valid"] == false && changed["tokens"] == 2000));
  CHECK(changed["problems"][0].get<std::string>().find("checksum") != std::string::npos);
  CHECK(inspect(here, "data")["valid"] == false);
}

TEST_CASE("models and single files are listed; anything else is refused with what is accepted") {
  Workspace const here;
  Reference const reference("gpt2");
  json const model = inspect(here, reference.directory);
  CHECK((model["kind"] == "model" && model["complete"] == true));
  CHECK((model["model"]["family"] == "gpt2" && model["model"]["ffn"] == 192));
  json const file = inspect(here, reference.directory + "/model.safetensors");
  CHECK(file["kind"] == "tensors");
  CHECK(file["tensors"] == model["tensors"]);
  here.write("text.txt", "text");
  for (const char* path : {"text.txt", ".", "nowhere", "/dev/null"}) {
    Outcome const outcome = here.copus(std::string("inspect ") + path);
    CHECK(outcome.code == 2);
    CHECK(outcome.out.empty());
    CHECK(outcome.err.find(path) != std::string::npos);
  }
}

TEST_CASE("what files call their tensors, keys and tokenizers is shown and never obeyed") {
  Workspace const here;
  Reference const reference("llama-tied");
  // Clears the screen, in both spellings of the command, and ends its line to begin another.
  std::string const hostile =
      "\x1b[2J\xc2\x9b"
      "2J\x7f\r\n  complete       yes";
  json const header = {{hostile, {{"dtype", "F32"}, {"shape", {1}}, {"data_offsets", {0, 4}}}}};
  std::string const text = header.dump();
  std::uint64_t const length = text.size();
  std::filesystem::create_directory(here / "model");
  std::filesystem::copy(reference.directory + "/config.json", here / "model");
  here.write("model/model.safetensors",
             std::string(reinterpret_cast<const char*>(&length), 8) + text + std::string(4, '\0'));
  std::filesystem::create_directory(here / "parts");
  std::filesystem::copy(reference.directory + "/config.json", here / "parts");
  here.write("parts/model.safetensors.index.json",
             json{{"weight_map", {{hostile, "x.safetensors"}}}}.dump());
  here.write("c.json", json{{hostile, 1}}.dump());
  here.write("hardware.json", json{{"name", hostile}}.dump());
  here.write("plan.json", R"({"model": {"layers": 1, "hidden": 32, "heads": 4, "ffn": 64,
      "vocab": 257, "seq_len": 32}, "batch": {"sequences": 4}})");
  REQUIRE(here.copus("prepare --tokenizer bytes --out data '" + reference.directory + "/text.txt'")
              .code == 0);
  here.write("t.json", R"({"model": {"layers": 1, "hidden": 32, "heads": 4, "ffn": 64,
      "vocab": 257, "seq_len": 32}, "data": {"train": "data"}, "batch": {"sequences": 4},
      "train": {"tokens": 128}, "run_dir": "run"})");
  REQUIRE(here.copus("train t.json --threads 1").code == 0);
  json stored = json::parse(here.read("run/config.json"));
  stored[hostile] = hostile;
  here.write("run/config.json", stored.dump());
  here.write("run/metrics.jsonl",
             here.read("run/metrics.jsonl") +
                 json{{"event", "stop"}, {"step", 1}, {"reason", hostile}}.dump() + "\n");
  for (const char* command :
       {"inspect model", "inspect model --json", "inspect model/model.safetensors", "inspect parts",
        "inspect run", "inspect run --json", "import model --out out", "import parts --out out",
        "eval model --data data", "train c.json", "train t.json --resume --threads 1",
        "plan plan.json --set cluster.hardware=hardware.json", "bench step --vs hardware.json"}) {
    Outcome const outcome = here.copus(command);
    std::string const shown = outcome.out + outcome.err;
    INFO(command << "\n" << shown);
    bool obeyed = shown.find("\xc2\x9b") != std::string::npos;
    for (char const c : shown)
      obeyed = obeyed || (static_cast<unsigned char>(c) < 0x20 && c != '\n') || c == 0x7f;
    CHECK_FALSE(obeyed);
    CHECK_FALSE(shown.empty());
  }
  // The table's lines are its own.
  std::string const table = here.copus("inspect model").out;
  CHECK(table.find("\n  complete       yes") == std::string::npos);
  CHECK(table.find("\\x1b[2J\\u009b2J\\x7f\\x0d\\x0a  complete") != std::string::npos);
}
