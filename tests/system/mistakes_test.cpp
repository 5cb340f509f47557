// What a user does wrong: exit code 2, every mistake at once, nothing written.
#include <algorithm>
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
  for (const char* command : {"train", "prepare", "eval", "import", "export", "inspect", "generate",
                              "plan", "bench step", "bench ops", "bench comm", "bench switch"}) {
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

TEST_CASE(
    "more ranks than a process can have are refused before any starts, or with how many did") {
  Workspace const here;
  here.write("c.json",
             R"({"model": {"preset": "gpt2-124m", "seq_len": 32}, "data": {"train": "nowhere"},
                          "batch": {"sequences": 8}, "train": {"tokens": 1000}, "run_dir": "run"})");
  Outcome const many = here.copus("train c.json --ranks 9999");
  CHECK(many.code == 2);
  CHECK(many.err.find("--ranks 9999: one process runs at most 1024 ranks") != std::string::npos);
  // A stack of 8 MiB each does not fit into this much address space.
  Outcome const small = here.copus("--version >/dev/null && ulimit -v 3000000 && '" COPUS_BINARY
                                   "' train c.json --ranks 700");
  CHECK(small.code == 2);
  CHECK(small.err.find("--ranks 700: only ") != std::string::npos);
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
                          "batch": {"sequences": 8}, "train": {"tokens": 1000},
                          "log": {"tensorboard": true}, "run_dir": "run"})");
  Outcome const outcome = here.copus("train c.json");
  CHECK(outcome.code == 2);
  CAPTURE(outcome.err);
  CHECK(outcome.err.find("log.tensorboard") != std::string::npos);
  CHECK_FALSE(here.has("run"));
}

TEST_CASE("NCCL between ranks on the CPU is refused, under any number of them") {
  Workspace const here;
  here.write("c.json",
             R"({"model": {"preset": "gpt2-124m", "seq_len": 32}, "data": {"train": "nowhere"},
                          "batch": {"sequences": 8}, "train": {"tokens": 1000}, "device": "cpu",
                          "transport": "nccl", "run_dir": "run"})");
  for (const char* command : {"train c.json", "train c.json --ranks 2"}) {
    Outcome const outcome = here.copus(command);
    CAPTURE(command, outcome.err);
    CHECK(outcome.code == 2);
    CHECK(outcome.err.find("transport: nccl: the ranks compute on the CPU") != std::string::npos);
    CHECK(outcome.err.find("accepted here: thread, auto") != std::string::npos);
    CHECK_FALSE(here.has("run"));
  }
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

TEST_CASE("numbers out of range are answered in a line, with what is accepted") {
  Workspace const here;
  for (const char* command :
       {"train c.json --ranks 0", "train c.json --threads -1", "eval m --data d --seq-len 0",
        "bench step --batch -3", "bench ops --repeats 0", "generate m --prompt x --temperature -1",
        "generate m --prompt x --temperature inf", "generate m --prompt x --top-k 1.5",
        "train c.json --threads 1e400", "plan c.json --world 0", "plan c.json --critical-batch 0",
        "plan c.json --critical-batch nan"}) {
    Outcome const outcome = here.copus(command);
    CAPTURE(command, outcome.err);
    CHECK(outcome.code == 2);
    CHECK(outcome.err.find("it takes a ") != std::string::npos);
    CHECK(outcome.err.size() < 200);
  }
}

TEST_CASE("a run that could not be written or held in memory is refused before anything starts") {
  Workspace const here;
  here.write("t.txt", std::string(4000, 'x'));
  REQUIRE(here.copus("prepare --tokenizer bytes --out data t.txt").code == 0);
  here.write("c.json", R"({"model": {"layers": 1, "hidden": 32, "heads": 4, "ffn": 64, "vocab": 257,
      "seq_len": 32}, "data": {"train": "data"}, "batch": {"sequences": 4, "micro": 4},
      "train": {"tokens": 128}, "run_dir": "run"})");
  // Where root too can make nothing: permissions do not tell.
  Outcome const unwritable = here.copus("train c.json --run-dir /proc/copus-run");
  CHECK(unwritable.code == 2);
  CHECK(unwritable.err.find("run_dir /proc/copus-run: /proc cannot be written") !=
        std::string::npos);
  Outcome const nested = here.copus("train c.json --run-dir /proc/a/b/c");
  CHECK(nested.code == 2);
  CHECK(nested.err.find("/proc cannot be written") != std::string::npos);

  Outcome const large =
      here.copus("train c.json --set batch.sequences=1000000000 --set train.tokens=1T");
  CHECK(large.code == 2);
  CHECK(large.err.find("batch.sequences: the token ids of 1000000000 sequences of 32 tokens") !=
        std::string::npos);
  CHECK(large.err.find("it takes at most ") != std::string::npos);
  Outcome const scheduled =
      here.copus("train c.json --set 'batch.schedule=0:4 1K:1000000000' --set train.tokens=1T");
  CHECK(scheduled.code == 2);
  CHECK(scheduled.err.find("batch.schedule: the token ids of 1000000000") != std::string::npos);
  CHECK_FALSE(here.has("run"));
  CHECK(here.copus("train c.json --threads 1").code == 0);
}

TEST_CASE("of very many mistakes the first are told, and how many there are") {
  Workspace const here;
  std::filesystem::create_directory(here / "hf");
  here.write("hf/config.json", R"({"model_type": "llama", "num_hidden_layers": 1, "hidden_size": 8,
    "num_attention_heads": 1, "intermediate_size": 8, "vocab_size": 9,
    "max_position_embeddings": 8, "rms_norm_eps": 1e-5})");
  std::string map;
  for (int i = 0; i < 1000; ++i)
    map += std::string(i > 0 ? "," : "") + "\"t" + std::to_string(i) + "\": \"f" +
           std::to_string(i) + "\"";
  here.write("hf/model.safetensors.index.json", "{\"weight_map\": {" + map + "}}");
  Outcome const refused = here.copus("import hf --out out");
  CHECK(refused.code == 2);
  CHECK(std::count(refused.err.begin(), refused.err.end(), '\n') == 201);
  CHECK(refused.err.find("and 800 more") != std::string::npos);
}

TEST_CASE("the exit code tells also where nothing can be printed") {
  Workspace const here;
  here.write("t.txt", "text");
  here.write("c.json", R"({"model": {"preset": "gpt2-124m"}, "batch": {"sequences": 8},
    "cluster": {"hardware": "h100-sxm"}})");
  auto const code_of = [&](const std::string& arguments) {
    return here.copus("--version >/dev/null; '" COPUS_BINARY "' " + arguments).code;
  };
  for (const char* nowhere : {">/dev/full 2>/dev/full", ">&- 2>&-"}) {
    CAPTURE(nowhere);
    CHECK(code_of("train absent.json " + std::string(nowhere) + "; exit $?") == 2);
    CHECK(code_of("prepare --tokenizer bytes --out d --force t.txt " + std::string(nowhere) +
                  "; exit $?") == 0);
    if (std::string(nowhere).find("full") != std::string::npos) {
      // What was asked for is what is printed.
      CHECK(code_of("inspect d " + std::string(nowhere) + "; exit $?") == 1);
      CHECK(code_of("plan c.json " + std::string(nowhere) + "; exit $?") == 1);
    }
    // Nothing of what was to be printed went into the files instead.
    CHECK(nlohmann::json::parse(here.copus("inspect d --json").out)["valid"] == true);
  }
}
