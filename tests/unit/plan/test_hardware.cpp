#include <catch2/catch.hpp>

#include "copus/core/error.h"
#include "copus/plan/hardware.h"

namespace copus {
namespace {

std::vector<std::string> problems_of(const std::string& text) {
  try {
    parse_hardware(text, "box.json");
  } catch (const ConfigError& error) {
    return error.problems();
  }
  return {};
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  auto const at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("a GPU is known by its driver's name, and cards with other peaks are not taken for it") {
  constexpr std::int64_t kGib = std::int64_t{1} << 30;
  auto const preset = [](const std::string& name, std::int64_t gib) {
    auto const hardware = hardware_of_gpu(name, gib * kGib);
    return hardware ? hardware->name : std::string("none");
  };
  CHECK(preset("NVIDIA H100 80GB HBM3", 79) == "h100-sxm");
  CHECK(preset("NVIDIA H200", 140) == "h200-sxm");
  CHECK(preset("NVIDIA B200", 178) == "b200-sxm");
  CHECK(preset("NVIDIA A100-SXM4-80GB", 79) == "a100-sxm-80gb");
  CHECK(preset("NVIDIA A100-SXM4-40GB", 39) == "a100-sxm-40gb");
  for (const char* other :
       {"NVIDIA H100 PCIe", "NVIDIA H100 NVL", "NVIDIA H200 NVL", "NVIDIA GH200 480GB",
        "NVIDIA GB200", "NVIDIA A100-PCIE-40GB", "NVIDIA GeForce RTX 4090", ""}) {
    CAPTURE(other);
    CHECK(preset(other, 80) == "none");
  }
}

TEST_CASE("presets have the listed peaks and memory of their datasheets") {
  struct Fact {
    const char* name;
    double bf16, fp32, gigabytes;
  };
  for (const Fact& fact :
       {Fact{"h100-sxm", 989e12, 67e12, 80}, Fact{"h200-sxm", 989e12, 67e12, 140},
        Fact{"b200-sxm", 2250e12, 80e12, 180}, Fact{"a100-sxm-80gb", 312e12, 19.5e12, 80},
        Fact{"a100-sxm-40gb", 312e12, 19.5e12, 40}, Fact{"mi210", 181e12, 45.3e12, 64}}) {
    CAPTURE(fact.name);
    Hardware const hw = hardware_preset(fact.name);
    CHECK(hw.name == fact.name);
    CHECK_FALSE(hw.source.empty());
    CHECK(hw.bf16.peak_flops == fact.bf16);
    CHECK(hw.fp32.peak_flops == fact.fp32);
    CHECK(static_cast<double>(hw.memory_bytes) == fact.gigabytes * 1024 * 1024 * 1024);
    CHECK(hw.usable_bytes() < hw.memory_bytes);
  }
  CHECK(hardware_preset_names().size() == 6);
}

TEST_CASE("an unknown preset is refused with the nearest name and all the others") {
  CHECK_THROWS_AS(hardware_preset("h100-sxn"), ConfigError);
  CHECK_THROWS_WITH(hardware_preset("h100-sxn"), Catch::Contains("h100-sxn") &&
                                                     Catch::Contains("did you mean h100-sxm?") &&
                                                     Catch::Contains("mi210"));
}

TEST_CASE("a profile read back from its text is the same") {
  for (const std::string& name : hardware_preset_names()) {
    Hardware const hw = hardware_preset(name);
    CHECK(parse_hardware(hardware_json(hw), "x") == hw);
  }
  Hardware cpu = hardware_preset("mi210");
  cpu.bf16 = {0.0, 1.0};
  cpu.between.bytes_per_second = 125e6;
  CHECK(parse_hardware(hardware_json(cpu), "x").between.bytes_per_second == 125e6);
  CHECK(parse_hardware(hardware_json(cpu), "x").bf16.peak_flops == 0.0);
}

TEST_CASE("every mistake of a profile is named at once with file, key, value and what it takes") {
  std::string text = hardware_json(hardware_preset("h100-sxm"));
  text = replaced(text, "\"half_size\"", "\"halfsize\"");
  text = replaced(text, "\"forward\": 0.45", "\"forward\": 1.5");
  text = replaced(text, "\"name\": \"h100-sxm\"", "\"name\": 7");
  text = replaced(text, "\"overlap\": {", "\"overlap\": {\"more\": 1,");
  std::vector<std::string> const problems = problems_of(text);
  CHECK(problems.size() == 4);
  auto const named = [&](const std::vector<std::string>& pieces) {
    for (const std::string& problem : problems) {
      bool all = problem.starts_with("box.json: ");
      for (const std::string& piece : pieces) all = all && problem.find(piece) != std::string::npos;
      if (all) return true;
    }
    return false;
  };
  CHECK(named({"matrix.halfsize", "did you mean matrix.half_size"}));
  CHECK(named({"attention.forward", "1.5", "at most 1"}));
  CHECK(named({"name: 7", "text"}));
  CHECK(named({"overlap.more: unknown"}));
}

TEST_CASE("a profile without a needed rate, or with more reserved than there is, is refused") {
  std::string const good = hardware_json(hardware_preset("a100-sxm-40gb"));
  CHECK(problems_of(good).empty());
  std::vector<std::string> const missing =
      problems_of(R"({"name": "n", "source": "s", "matrix": {"fp32": 3}})");
  CHECK(missing.size() >= 8);
  CHECK(problems_of("[]").size() == 1);
  CHECK(problems_of("{\"name\": ").size() == 1);
  CHECK(problems_of(replaced(good, "\"bytes\": 42949672960.0", "\"bytes\": 1000000")).size() == 1);
  CHECK(problems_of(replaced(good, "\"bytes\": 42949672960.0", "\"bytes\": 1e300")).size() == 1);
}

TEST_CASE("a link measured by a ring gives the ring its time back, and never an endless rate") {
  // Four ranks, 10 us a message, 1 GB/s, 8 MB: each sends six quarters of them.
  double const small = 6 * 10e-6, large = small + 12e6 / 1e9;
  Link const link = link_of_ring(4, small, 8e6, large);
  CHECK(link.latency_seconds == Approx(10e-6));
  CHECK(link.bytes_per_second == Approx(1e9));
  // Waking took as long as moving.
  CHECK(link_of_ring(4, large, 8e6, large).bytes_per_second == Approx(12e6 / (0.5 * large)));
  CHECK(link_of_ring(2, 2.0 * large, 8e6, large).bytes_per_second == Approx(8e6 / (0.5 * large)));
}

TEST_CASE(
    "a rank alone is never slower than among others, and a profile keeps how much faster it is") {
  Hardware hw = hardware_preset("h100-sxm");
  CHECK(hw.alone == 1.0);
  hw.alone = 2.0;
  std::string const text = hardware_json(hw);
  CHECK(parse_hardware(text, "box.json").alone == 2.0);
  std::vector<std::string> const problems =
      problems_of(replaced(text, "\"alone\": 2.0", "\"alone\": 0.5"));
  REQUIRE(problems.size() == 1);
  CHECK(problems[0] == "box.json: host.alone: 0.5 is not accepted; it takes a number from 1 up");
}

}  // namespace copus
