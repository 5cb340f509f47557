#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "copus/core/config_io.h"
#include "copus/core/error.h"
#include "copus/plan/replay.h"

namespace copus {
namespace {

std::string read(const std::string& name, const std::string& trace = "planner-trace") {
  std::ifstream in(std::string(COPUS_TEST_DIR) + "/golden/" + trace + "/" + name);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

Config trace_config(const std::string& trace = "planner-trace") {
  std::vector<std::string> warnings;
  return parse_config(read("config.json", trace), "config.json", {}, ConfigUse::train, warnings);
}

// The words of a reason, its numbers left out: they are compared as numbers.
std::string words_of(const std::string& reason) {
  std::string words;
  for (char c : reason) {
    if (std::isdigit(static_cast<unsigned char>(c)) == 0) words += c;
  }
  return words;
}

void same_decisions(const Replay& replayed) {
  for (const ReplayedDecision& r : replayed.decisions) {
    CAPTURE(r.step, r.decision.reason, r.recorded_reason);
    CHECK(r.decision.to == r.recorded_to);
    CHECK(r.decision.predicted == Approx(r.recorded_predicted).epsilon(1e-9));
    CHECK(r.decision.current == Approx(r.recorded_current).epsilon(1e-9));
    CHECK(r.decision.probability == Approx(r.recorded_probability).margin(1e-9));
    CHECK(words_of(r.decision.reason) == words_of(r.recorded_reason));
  }
}

}  // namespace

TEST_CASE("a recorded run's metrics give its decisions and verdicts once more") {
  Replay const replayed = replay(trace_config(), read("metrics.jsonl"), "metrics.jsonl");
  REQUIRE(replayed.decisions.size() >= 5);
  same_decisions(replayed);
  bool batch_changed = false;
  for (const ReplayedDecision& r : replayed.decisions)
    batch_changed = batch_changed || r.decision.to.batch != r.decision.from.batch;
  CHECK(batch_changed);  // a trace in which something happens
  REQUIRE(!replayed.verdicts.empty());
  for (const ReplayedVerdict& r : replayed.verdicts) {
    CAPTURE(r.step, r.verdict.reason);
    CHECK((r.verdict.ruling == Ruling::keep) == r.recorded_kept);
  }
}

TEST_CASE("a replay depends on what was recorded: other noise, other decisions") {
  std::string metrics = read("metrics.jsonl");
  for (std::size_t at = 0; (at = metrics.find("\"warm\"", at)) != std::string::npos;) {
    metrics.replace(at, 6, "\"unresolved\"");
  }
  for (const ReplayedDecision& r : replay(trace_config(), metrics, "metrics.jsonl").decisions) {
    CHECK(r.decision.to.batch == r.decision.from.batch);
  }
}

TEST_CASE(
    "a recorded run with branched checks gives what they found, and its decisions, once more") {
  Config const config = trace_config("check-trace");
  std::string const metrics = read("metrics.jsonl", "check-trace");
  Replay const replayed = replay(config, metrics, "metrics.jsonl");
  REQUIRE(replayed.checks.size() == 2);
  bool corrected = false;
  for (const ReplayedCheck& r : replayed.checks) {
    CAPTURE(r.step, r.finding.reason);
    REQUIRE(r.finding.critical_batch.has_value() == r.recorded_critical_batch.has_value());
    if (r.recorded_critical_batch)
      CHECK(*r.finding.critical_batch == Approx(*r.recorded_critical_batch).epsilon(1e-6));
    CHECK(config.adapt.calibration * r.finding.correction ==
          Approx(r.recorded_calibration).epsilon(1e-6));
    corrected = corrected || r.finding.correction != 1.0;
  }
  CHECK(corrected);
  REQUIRE(replayed.decisions.size() >= 4);
  same_decisions(replayed);
}

TEST_CASE("a replay whose checks are left out goes by another critical batch") {
  std::string metrics = read("metrics.jsonl", "check-trace");
  for (std::size_t at = 0; (at = metrics.find("\"event\": \"check\"", at)) != std::string::npos;)
    metrics.replace(at, 16, "\"event\": \"other\"");
  Config const config = trace_config("check-trace");
  Replay const with = replay(config, read("metrics.jsonl", "check-trace"), "metrics.jsonl"),
               without = replay(config, metrics, "metrics.jsonl");
  CHECK(without.checks.empty());
  REQUIRE(without.decisions.size() == with.decisions.size());
  CHECK(without.decisions.back().decision.critical_batch !=
        Approx(with.decisions.back().decision.critical_batch));
}

TEST_CASE("what is no run's metrics is refused by its line") {
  auto const message = [](const std::string& text) {
    try {
      replay(trace_config(), text, "m.jsonl");
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK_THAT(message("{\"step\": 1}\n"), Catch::Contains("m.jsonl: has no planner event"));
  CHECK_THAT(message("{\"step\": 1}\n{\"event\": \"planner\"}\n"), Catch::Contains("m.jsonl:2: "));
  CHECK_THAT(message("[\n"), Catch::Contains("m.jsonl:1: "));
}

}  // namespace copus
