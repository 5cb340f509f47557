// The record of a run, metrics.jsonl: what of it survives a full disk, a power cut, lost files.
#include <catch2/catch.hpp>
#include <filesystem>
#include <iterator>
#include <sstream>

#include "support/command.h"
#include "support/short_run.h"

using copus::test::Outcome;
using copus::test::short_run;
using copus::test::steps_of;
using copus::test::Workspace;
using nlohmann::json;

namespace {

bool says(const Outcome& outcome, const std::string& words) {
  return outcome.err.find(words) != std::string::npos;
}

// Only the lines of the record that `keep` wants.
template <class Keep>
std::string filter_record(const Workspace& here, Keep keep) {
  std::string text;
  std::istringstream in(here.read("run/metrics.jsonl"));
  for (std::string line; std::getline(in, line);)
    if (keep(json::parse(line))) text += line + "\n";
  here.write("run/metrics.jsonl", text);
  return text;
}

// A command that can write files of 512 bytes; all that it says is in `out`.
Outcome on_small_disk(const Workspace& here, const std::string& arguments) {
  return here.copus("--version >/dev/null; (trap '' XFSZ; ulimit -f 1; '" COPUS_BINARY "' " +
                    arguments + " 2>&1)");
}

// A command under the trace of tests/support/io_trace.cpp, and what that saw, a line a call.
std::vector<std::vector<std::string>> traced(const Workspace& here, const std::string& arguments) {
  std::filesystem::remove(here / "trace");
  // The address sanitizer wants to be loaded first, and does not mind.
  Outcome const outcome = here.copus(
      "--version >/dev/null; ASAN_OPTIONS=verify_asan_link_order=0 "
      "COPUS_IO_TRACE='" +
      (here / "trace") + "' LD_PRELOAD='" IO_TRACE "' '" COPUS_BINARY "' " + arguments);
  INFO(outcome.err);
  REQUIRE(outcome.code == 0);
  std::vector<std::vector<std::string>> calls;
  std::istringstream in(here.read("trace"));
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    calls.emplace_back(std::istream_iterator<std::string>(words),
                       std::istream_iterator<std::string>());
  }
  REQUIRE_FALSE(calls.empty());
  return calls;
}

}  // namespace

TEST_CASE("the lines of a checkpoint's steps are on the disk before it gets its name") {
  Workspace const here;
  short_run(here);
  for (const char* async : {"false", "true"}) {
    CAPTURE(async);
    std::filesystem::remove_all(here / "run");
    auto const calls =
        traced(here,
               "train c.json --threads 1 --set checkpoint.every_tokens=512 --set train.tokens"
               "=4096 --set checkpoint.async=" +
                   std::string(async));
    std::string const record = here.read("run/metrics.jsonl");
    std::size_t kept = 0;
    int published = 0;
    for (const auto& call : calls) {
      if (call[0] == "sync" && call[1].ends_with("/metrics.jsonl")) kept = std::stoul(call[2]);
      bool const publishes = call[0] == "rename" && call[2].find("/step-") != std::string::npos;
      if (!publishes || !call[1].ends_with(".tmp")) continue;
      ++published;
      std::string const digits = call[2].substr(call[2].rfind('-') + 1);
      CAPTURE(call[2], kept);
      CHECK(record.substr(0, kept).find("\"samples\":" + std::to_string(8 * std::stol(digits)) +
                                        ",\"seconds\"") != std::string::npos);
    }
    CHECK(published == 8);
  }
}

TEST_CASE("a resume reads each file once for its checksum, on however many ranks") {
  Workspace const here;
  short_run(here);
  std::uintmax_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(here / "run/checkpoints/latest"))
    if (entry.path().extension() == ".safetensors") bytes += entry.file_size();
  std::uintmax_t const source = std::filesystem::file_size(here / "source/model.safetensors");
  auto const read_by = [&](const std::string& arguments) {
    std::uintmax_t sum = 0;
    for (const auto& call : traced(here, arguments))
      if (call[0] == "read" && call[1].ends_with(".safetensors")) sum += std::stoul(call[2]);
    return sum;
  };
  CHECK(read_by("train c.json --threads 1 --resume") == bytes);
  CHECK(read_by("train c.json --threads 1 --resume --ranks 4 --set parallel.dp=2 --set "
                "parallel.tp=2") == bytes);
  // model.from is a checkpoint too.
  CHECK(read_by("train c.json --threads 1 --run-dir other --ranks 4 --set parallel.dp=2 --set "
                "parallel.tp=2") == source);
  CHECK(read_by("eval source --data data --seq-len 32 --ranks 2 --threads 1") == source);
}

TEST_CASE("steps that no checkpoint has kept are set aside by a resume, and it says so") {
  Workspace const here;
  short_run(here);
  std::filesystem::remove_all(here / "run/checkpoints");
  for (int time = 1; time <= 2; ++time) {
    std::string const aside = "run/metrics-before-" + std::to_string(time) + ".jsonl";
    // Killed before its first checkpoint.
    std::filesystem::remove_all(here / "run/checkpoints");
    std::string const record = filter_record(
        here, [](const json& line) { return line.value("event", "") != "checkpoint"; });
    Outcome const resumed = here.copus("train c.json --resume --threads 1");
    INFO(resumed.err);
    CHECK(resumed.code == 0);
    CHECK(says(resumed, "starting again with the first step; " + aside + " has the 4 steps"));
    CHECK(here.read(aside) == record);
    std::vector<json> const steps = steps_of(here, "run");
    REQUIRE(steps.size() == 4);
    for (std::size_t i = 0; i < steps.size(); ++i) CHECK(steps[i]["step"] == i + 1);
  }
}

TEST_CASE("a resume chooses its checkpoint when no other process trains in the folder any more") {
  Workspace const here;
  short_run(here);
  bool locked = false, read = false;
  for (const auto& call : traced(here, "train c.json --resume --threads 1")) {
    locked = locked || (call[0] == "lock" && call[1].ends_with("/run/.lock"));
    if (call[0] != "read" || call[1].find("/run/checkpoints/") == std::string::npos) continue;
    CHECK(locked);
    read = true;
  }
  CHECK(read);
}

TEST_CASE("one damaged line of the record costs no other, and no start from nothing") {
  Workspace const here;
  short_run(here);
  for (int const damaged : {1, 3}) {
    CAPTURE(damaged);
    std::vector<std::string> lines;
    std::istringstream in(here.read("run/metrics.jsonl"));
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    std::string const bad = "\x01" + lines[static_cast<std::size_t>(damaged - 1)].substr(1);
    lines[static_cast<std::size_t>(damaged - 1)] = bad;
    std::string text;
    for (const std::string& line : lines) text += line + "\n";
    here.write("run/metrics.jsonl", text);
    Outcome const resumed = here.copus("train c.json --resume --threads 1");
    INFO(resumed.err);
    CHECK(resumed.code == 0);
    CHECK(says(resumed, "the first of them line 1"));
    std::string const after = here.read("run/metrics.jsonl");
    CHECK(after.substr(0, text.size()) == text);
  }
  std::filesystem::rename(here / "run/checkpoints", here / "kept");
  here.write("run/metrics.jsonl", "{\"event\": \n{\"step\": 1}\n{\"step\": 2}\n");
  std::string const record = here.read("run/metrics.jsonl");
  Outcome const refused = here.copus("train c.json --resume --threads 1");
  INFO(refused.err);
  CHECK(refused.code == 2);
  CHECK(says(refused, "line 1 is no line of a record"));
  CHECK(here.read("run/metrics.jsonl") == record);
}

TEST_CASE("a record that is set aside has its name until another has it") {
  Workspace const here;
  short_run(here);
  std::filesystem::remove_all(here / "run/checkpoints");
  filter_record(here, [](const json& line) { return line.value("event", "") != "checkpoint"; });
  int replaced = 0;
  for (const auto& call : traced(here, "train c.json --resume --threads 1")) {
    if (call[0] != "rename") continue;
    CHECK_FALSE(call[1].ends_with("/metrics.jsonl"));
    replaced += call[2].ends_with("/metrics.jsonl") ? 1 : 0;
  }
  CHECK(replaced == 1);
  CHECK(here.has("run/metrics-before-1.jsonl"));
}

TEST_CASE("a resume whose checkpoints are gone is refused, and nothing is written") {
  Workspace const here;
  short_run(here);
  std::filesystem::rename(here / "run/checkpoints", here / "kept");
  std::string const record = here.read("run/metrics.jsonl"), log = here.read("run/log.txt");
  for (const char* ranks : {"", " --ranks 2"}) {
    Outcome const refused = here.copus("train c.json --resume --threads 1" + std::string(ranks));
    INFO(refused.err);
    CHECK(refused.code == 2);
    CHECK(says(refused, "run/metrics.jsonl tells of a checkpoint of step 4"));
    CHECK(says(refused, "--run-dir"));
    CHECK(here.read("run/metrics.jsonl") == record);
    CHECK(here.read("run/log.txt") == log);
  }
  std::filesystem::rename(here / "kept", here / "run/checkpoints");
  CHECK(here.copus("train c.json --resume --threads 1").code == 0);
}

TEST_CASE("a resume says which lines of the checkpoint's steps a power cut has taken") {
  Workspace const here;
  short_run(here);
  filter_record(here, [](const json& line) { return line["step"].get<int>() <= 2; });
  Outcome const resumed = here.copus("train c.json --resume --threads 1 --set train.tokens=2048");
  INFO(resumed.err);
  CHECK(resumed.code == 0);
  CHECK(says(resumed,
             "run/metrics.jsonl: holds 2 of the 4 steps up to the checkpoint, the last of "
             "them step 2"));
  CHECK(steps_of(here, "run").back()["step"] == 8);
}

TEST_CASE("what a start leaves that was killed, or had no room, can be started again") {
  Workspace const here;
  short_run(here);
  // Killed before config.json was there.
  std::filesystem::create_directory(here / "killed");
  for (const char* file : {"killed/.lock", "killed/log.txt", "killed/metrics.jsonl"})
    here.write(file, "");
  here.write("killed/config.json.tmp", "{");
  Outcome const again = here.copus("train c.json --threads 1 --run-dir killed");
  INFO(again.err);
  CHECK(again.code == 0);
  // Killed after: it holds a run, that has not come to a step.
  std::filesystem::remove_all(here / "killed/checkpoints");
  here.write("killed/metrics.jsonl", "");
  CHECK(here.copus("train c.json --threads 1 --run-dir killed").code == 2);
  CHECK(here.copus("train c.json --threads 1 --run-dir killed --resume").code == 0);
  CHECK_FALSE(here.has("killed/metrics-before-1.jsonl"));
  // No room for config.json.
  Outcome const full = on_small_disk(here, "train c.json --threads 1 --run-dir full");
  INFO(full.out);
  CHECK(full.code == 1);
  CHECK(full.out.find("cannot write full/config.json") != std::string::npos);
  CHECK_FALSE(here.has("full/config.json"));
  CHECK_FALSE(here.has("full/config.json.tmp"));
  CHECK(here.copus("train c.json --threads 1 --run-dir full").code == 0);
}

TEST_CASE("a disk that is full from the start on ends a run at its last save, and takes nothing") {
  Workspace const here;
  short_run(here);
  // What a run of twice the length has written before it was cut short at half.
  REQUIRE(here.copus("train c.json --threads 1 --run-dir long --set train.tokens=2048").code == 0);
  json config = json::parse(here.read("long/config.json"));
  config["run_dir"] = "run";
  here.write("run/config.json", config.dump(2) + "\n");
  std::string const record = here.read("run/metrics.jsonl");
  Outcome const full = on_small_disk(here, "train run/config.json --resume --threads 1");
  INFO(full.out);
  CHECK(full.code == 1);
  CHECK(full.out.find("wait in memory") != std::string::npos);
  CHECK(full.out.find("step      8 ") != std::string::npos);
  CHECK(full.out.find("the last state could not be saved") != std::string::npos);
  std::size_t const once = full.out.find("the log may lack lines");
  CHECK(once != std::string::npos);
  CHECK(full.out.find("the log may lack lines", once + 1) == std::string::npos);
  CHECK(here.read("run/metrics.jsonl") == record);
  // Another configuration has no room beside the old one, which stays.
  Outcome const other =
      on_small_disk(here, "train run/config.json --resume --threads 1 --set train.tokens=4096");
  CHECK(other.code == 1);
  CHECK(json::parse(here.read("run/config.json")) == config);
  json const run = json::parse(here.copus("inspect run --json").out);
  REQUIRE(run["checkpoints"].size() == 1);
  CHECK(run["checkpoints"][0]["complete"] == true);
  CHECK(here.copus("train run/config.json --resume --threads 1").code == 0);
  std::vector<json> const steps = steps_of(here, "run");
  REQUIRE(steps.size() == 8);
  for (std::size_t i = 0; i < steps.size(); ++i) CHECK(steps[i]["step"] == i + 1);
}

TEST_CASE("a model with weights that are no numbers starts no run and no evaluation") {
  Workspace const here;
  short_run(here);
  std::filesystem::create_directory(here / "bad");
  copus::test::Reference const reference("llama-tied");
  std::filesystem::copy(reference.directory + "/config.json", here / "bad");
  std::string bytes = here.read("source/model.safetensors");
  bytes.replace(bytes.size() - 4, 4, std::string("\0\0\xc0\x7f", 4));
  here.write("bad/model.safetensors", bytes);
  std::string const train = "train c.json --threads 1 --run-dir other --set model.from=bad";
  for (const std::string& command :
       {train, train + " --ranks 4 --set parallel.pp=2 --set parallel.tp=2",
        std::string("import bad --out other"), std::string("eval bad --data data --seq-len 32"),
        std::string("export bad --out other"),
        std::string("generate bad --prompt x --tokenizer bytes")}) {
    Outcome const outcome = here.copus(command);
    INFO(command << "\n" << outcome.err);
    CHECK(outcome.code == 2);
    CHECK(says(outcome, "holds 1 weight that is NaN or infinite"));
    CHECK_FALSE(here.has("other"));
  }
}
