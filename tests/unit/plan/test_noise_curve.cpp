#include <catch2/catch.hpp>
#include <string>

#include "copus/core/error.h"
#include "copus/plan/noise_curve.h"

namespace copus {
namespace {

Config config_of(std::int64_t batch) {
  Config config;
  config.batch.sequences = batch;
  return config;
}

std::string refusal(const std::string& text) {
  try {
    parse_noise_curve(text, 0.25, "--noise");
  } catch (const ConfigError& error) {
    std::string all;
    for (const std::string& problem : error.problems()) all += problem + "\n";
    return all;
  }
  return "";
}

std::string recorded_refusal(const std::string& metrics) {
  try {
    recorded_noise_curve(config_of(4), metrics, "m.jsonl");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

const char* const kRecording =
    "{\"event\": \"planner\"}\n"
    "{\"step\": 1, \"tokens\": 100, \"batch\": 10, \"gns\": {\"state\": \"cold\", "
    "\"critical_batch\": 99, \"low\": null, \"high\": null}}\n"
    "{\"step\": 2, \"tokens\": 200, \"batch\": 10, \"gns\": {\"state\": \"warm\", "
    "\"critical_batch\": 10, \"low\": 8, \"high\": 16}}\n"
    "{\"step\": 3, \"tokens\": 300, \"batch\": 30}\n"
    "{\"step\": 4, \"tokens\": 400, \"batch\": 30, \"gns\": {\"state\": \"warm\", "
    "\"critical_batch\": 30, \"low\": 20, \"high\": 40}}\n";

}  // namespace

TEST_CASE("a power law starts at its first value and is its closed form everywhere else") {
  NoiseCurve const curve = parse_noise_curve("power:64,1M,0.5", 0.25, "--noise");
  CHECK(curve.at(0.0).critical_batch == 64.0);
  CHECK(curve.at(3e6).critical_batch == Approx(128.0));
  CHECK(curve.at(3e6).high == Approx(160.0));
  CHECK(curve.at(3e6).low == Approx(102.4));
  CHECK_FALSE(curve.end().has_value());
}

TEST_CASE("points are met exactly, joined by straight lines, and held outside") {
  NoiseCurve const curve = parse_noise_curve("points:1K:100,3K:300,4K:50", 0.0, "--noise");
  CHECK(curve.at(0.0).critical_batch == 100.0);
  CHECK(curve.at(1000.0).critical_batch == 100.0);
  CHECK(curve.at(1500.0).critical_batch == Approx(150.0));
  CHECK(curve.at(3000.0).critical_batch == 300.0);
  CHECK(curve.at(3500.0).critical_batch == Approx(175.0));
  CHECK(curve.at(1e9).critical_batch == 50.0);
  CHECK(curve.at(1500.0).low == curve.at(1500.0).high);
  CHECK(*curve.end() == 4000.0);
}

TEST_CASE("a recording's readings stand at the useful tokens that its steps come to") {
  NoiseCurve const curve = recorded_noise_curve(config_of(10), kRecording, "m.jsonl");
  // At the first warm value, 10, a token is worth 1/2 in a batch of 10 and 1/4 in one of 30.
  CHECK(curve.at(100.0).critical_batch == 10.0);
  CHECK(curve.at(100.0).high == 16.0);
  CHECK(*curve.end() == Approx(100.0 + 50.0));
  CHECK(curve.at(125.0).critical_batch == Approx(20.0));
  CHECK(curve.at(125.0).low == Approx(14.0));
}

TEST_CASE("a useful token is one at efficiency 1, and under sqrt_lr one of the reference batch") {
  Config config = config_of(16);
  CHECK(useful_per_token(config, 16, 1e12) == Approx(1.0));
  CHECK(useful_per_token(config, 64, 64.0) == Approx(0.5));
  config.adapt.calibration = 3.0;
  CHECK(useful_per_token(config, 64, 64.0) == Approx(0.75));
  config.adapt.objective = Objective::sqrt_lr;
  CHECK(useful_per_token(config, 64, 64.0) == Approx(0.75 * 2.0));
  config.batch_rule.reference_batch = 64;
  CHECK(useful_per_token(config, 64, 64.0) == Approx(0.75));
}

TEST_CASE("every mistake of a curve is named, with what it takes") {
  CHECK_THAT(refusal("64"), Catch::Contains("--noise: \"64\" is no curve; it takes power:"));
  CHECK_THAT(refusal("power:64,1B"), Catch::Contains("has 2 values; it takes power:B0,TOKENS0"));
  std::string const all = refusal("power:-3,0,9");
  CHECK_THAT(all, Catch::Contains("\"-3\" is no noise scale; it takes sequences from 0.001"));
  CHECK_THAT(all, Catch::Contains("\"0\" tokens; it takes a count from 1 up"));
  CHECK_THAT(all, Catch::Contains("\"9\" is no exponent; it takes a number from -4 to 4"));
  CHECK_THAT(refusal("power:nan,1,1"), Catch::Contains("\"nan\" is no noise scale"));
  CHECK_THAT(refusal("power:1x,1,1"), Catch::Contains("\"1x\" is no noise scale"));
  CHECK_THAT(refusal("points:"), Catch::Contains("has no point"));
  CHECK_THAT(refusal("points:1:2,,3:4"), Catch::Contains("\"\" is no TOKENS:B"));
  CHECK_THAT(refusal("points:1:2,3:4,"), Catch::Contains("\"\" is no TOKENS:B"));
  CHECK_THAT(refusal("points:5:2,5:4"), Catch::Contains("does not come after the point before it"));
  CHECK_THAT(refusal("points:1.5x:2"), Catch::Contains("\"1.5x\" is not a count"));
}

TEST_CASE("a recording that says nothing, or is none, is refused by its name and line") {
  CHECK_THAT(recorded_refusal(""), Catch::Contains("m.jsonl: has no noise scale"));
  CHECK_THAT(recorded_refusal("{\"event\": \"run\"}\n[\n"),
             Catch::Contains("m.jsonl:2: not a line"));
  CHECK_THAT(recorded_refusal("{\"tokens\": 5}\n"), Catch::Contains("m.jsonl:1: not a line"));
  CHECK_THAT(recorded_refusal("7\n"), Catch::Contains("m.jsonl:1: not a line"));
  CHECK_THAT(recorded_refusal("{\"tokens\": 5, \"batch\": 4}\n{\"tokens\": 5, \"batch\": 4}\n"),
             Catch::Contains("m.jsonl:2: a step's tokens grow"));
  CHECK_THAT(recorded_refusal("{\"tokens\": 5, \"batch\": 0}\n"), Catch::Contains("m.jsonl:1: "));
}

}  // namespace copus
