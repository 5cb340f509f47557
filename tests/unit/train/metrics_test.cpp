// metrics.jsonl across the end of one process and the start of the next.
#include "copus/train/metrics.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>

#include "support/small_disk.h"
#include "train/metrics_record.h"
#include "unit/state/state_fixture.h"

using namespace copus;
using copus::test::read_bytes;
using copus::test::SmallDisk;
using copus::test::TempFolder;
using copus::test::write_bytes;

namespace {

std::string step_line(std::int64_t step) {
  return nlohmann::json{{"step", step}, {"loss", 1.0}}.dump() + "\n";
}
std::string event_line(const std::string& name, std::int64_t step, std::int64_t of_step) {
  return nlohmann::json{{"event", name}, {"step", step}, {"of_step", of_step}}.dump() + "\n";
}

// What going on from a checkpoint of `last_step` says, and what is left of the file.
struct Opened {
  std::string said, text;
};
Opened open_at(const TempFolder& here, const std::string& text, std::int64_t last_step) {
  write_bytes(here / "metrics.jsonl", text);
  write_bytes(here / "log.txt", "");
  Log log(0, false);
  log.attach_file(here / "log.txt");
  { MetricsFile const file(here / "metrics.jsonl", last_step, log); }
  return {read_bytes(here / "log.txt"), read_bytes(here / "metrics.jsonl")};
}

}  // namespace

TEST_CASE("a resume cuts what is past the checkpoint, and says which steps before it are lost") {
  TempFolder const here;
  std::string const one = step_line(1), two = step_line(2), three = step_line(3);
  std::string const run = event_line("run", 0, 0);
  CHECK(open_at(here, run + one + two + three, 3).said.empty());
  Opened const past = open_at(here, run + one + two + event_line("eval", 2, 2) + three, 2);
  CHECK(past.said.empty());
  CHECK(past.text == run + one + two + event_line("eval", 2, 2));

  Opened const lost = open_at(here, run + one + two, 5);
  CHECK(lost.said.find("metrics.jsonl: holds 2 of the 5 steps up to the checkpoint, the last of "
                       "them step 2") != std::string::npos);
  CHECK(lost.text == run + one + two);
  CHECK(open_at(here, run + one + three, 3).said.find("holds 2 of the 3 steps") !=
        std::string::npos);
  CHECK(open_at(here, "", 3).said.find("holds 0 of the 3 steps") != std::string::npos);
  // What a power cut leaves: a line cut off, or a block of zeros where lines were.
  Opened const torn = open_at(here, run + one + two.substr(0, 5), 3);
  CHECK(torn.text == run + one);
  CHECK(torn.said.find("holds 1 of the 3 steps") != std::string::npos);
  std::string const zeros = run + one + std::string(100, '\0') + "\n" + three;
  Opened const kept = open_at(here, zeros + step_line(4), 3);
  CHECK(kept.text == zeros);
  CHECK(kept.said.find("the first of them line 3: they stay") != std::string::npos);
  CHECK(kept.said.find("holds 2 of the 3 steps") != std::string::npos);
}

TEST_CASE("what a record tells of steps and checkpoints is read, whatever stands in it") {
  TempFolder const here;
  auto const record_of = [&](const std::string& text) {
    write_bytes(here / "metrics.jsonl", text);
    return read_metrics_record(here / "metrics.jsonl");
  };
  CHECK(read_metrics_record(here / "none").last_step == 0);
  MetricsRecord const none = record_of(event_line("run", 0, 0) + step_line(1) + step_line(2));
  CHECK((none.steps == 2 && none.last_step == 2 && none.saved_step == -1));
  // Written beside training, it is told of at a later step than its own.
  MetricsRecord const saved =
      record_of(step_line(1) + step_line(2) + event_line("checkpoint", 2, 1) + step_line(3));
  CHECK((saved.steps == 3 && saved.saved_step == 1));
  for (const std::string& odd :
       {std::string("[1]\n"), std::string("{\"step\": \"x\"}\n"), std::string("{\"event\": 3}\n"),
        std::string(5000, '[') + "\n", std::string("{\"event\": \"checkpoint\"}\n")}) {
    CAPTURE(odd.substr(0, 30));
    CHECK(record_of(step_line(1) + odd).last_step <= 1);
  }
}

TEST_CASE("a record that is set aside takes the first name that is free") {
  TempFolder const here;
  for (int i = 1; i <= 3; ++i) {
    std::string const text = step_line(i);
    write_bytes(here / "metrics.jsonl", text);
    std::string const aside = set_metrics_aside(here / "metrics.jsonl");
    CHECK(aside == here / ("metrics-before-" + std::to_string(i) + ".jsonl"));
    CHECK(read_bytes(here / "metrics.jsonl").empty());
    CHECK(read_bytes(aside) == text);
  }
}

TEST_CASE("a full disk is said once, from the first line of a run on, and so is its end") {
  TempFolder const here;
  write_bytes(here / "log.txt", "");
  Log log(0, false);
  log.attach_file(here / "log.txt");
  Counters counters;
  {
    MetricsFile file(here / "metrics.jsonl", 0, log);
    {
      // log.txt is small enough.
      SmallDisk const disk(2000);
      file.event("run", counters, {{"filler", std::string(3000, 'x')}});
      for (counters.step = 1; counters.step <= 5; ++counters.step)
        file.event("eval", counters, {{"loss", 1.0}});
      file.sync();
    }
    file.event("stop", counters, {{"reason", "done"}});
  }
  std::vector<nlohmann::json> lines;
  std::ifstream in(here / "metrics.jsonl");
  for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
  REQUIRE(lines.size() == 7);
  CHECK(lines.front()["event"] == "run");
  for (std::size_t i = 1; i <= 5; ++i) CHECK(lines[i]["step"] == i);
  CHECK(lines.back()["event"] == "stop");
  std::string const said = read_bytes(here / "log.txt");
  CHECK(std::count(said.begin(), said.end(), '\n') == 2);
  CHECK(said.find("wait in memory until there is room") != std::string::npos);
  CHECK(said.find("the lines that waited are written") != std::string::npos);
}
