#include <catch2/catch.hpp>
#include <string>

#include "copus/core/error.h"
#include "copus/plan/planner_memory.h"

namespace copus {
namespace {

// Every number another one.
PlannerMemory odd_memory() {
  PlannerMemory memory;
  LiveShape shape;
  shape.shape.layout = {.dp = 2, .tp = 3, .pp = 4};
  shape.shape.layout.virtual_stages = 5;
  shape.shape.layout.zero = 1;
  shape.shape.layout.sequence_parallel = true;
  shape.shape.micro = 6;
  shape.shape.recompute = Recompute::selective;
  shape.predicted = {0.1 + 0.2, 1.0 / 3};
  shape.weight = 1.1, shape.m = 1.2, shape.mm = 1.3, shape.t = 1.4, shape.mt = 1.5;
  shape.beta_weight = 1.6, shape.beta = 1.7, shape.residual = 1.8, shape.share = 1.9;
  memory.live.shapes = {shape};
  memory.state.last_change_step = 77;
  memory.state.held = {{shape.shape.layout, 6, 900, 2}, {{}, 0, 10, 1}};
  memory.trend.points = {{1000.0, 2.5}, {2000.0, -0.1}};
  memory.switch_seconds = 3.25;
  memory.micro_seconds = 0.1;
  memory.correction = 2.5;
  return memory;
}

std::string problem_of(const std::string& text) {
  try {
    parse_memory(text, "state.json: planner");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  std::size_t const at = text.find(what);
  REQUIRE(at != std::string::npos);
  return text.replace(at, what.size(), by);
}

}  // namespace

TEST_CASE("what a planner has learned comes back from its text bit for bit") {
  PlannerMemory const memory = odd_memory();
  CHECK(parse_memory(memory_text(memory), "x") == memory);
  CHECK(parse_memory(memory_text({}), "x") == PlannerMemory{});
  // A checkpoint of before, when only rollbacks counted.
  CHECK(parse_memory(replaced(memory_text(memory), "\"failures\"", "\"rollbacks\""), "x") ==
        memory);
}

TEST_CASE("a planner's memory that no run can have written is refused by name") {
  std::string const right = memory_text(odd_memory());
  CHECK(problem_of(right).empty());
  for (const std::string& wrong :
       {replaced(right, "\"dp\":2", "\"dp\":0"), replaced(right, "\"weight\":1.1", "\"weight\":0"),
        replaced(right, "\"weight\":1.1", "\"weight\":-1"),
        replaced(right, "\"weight\":1.1", "\"weight\":\"much\""),
        replaced(right, "\"selective\"", "\"some\""),
        replaced(right, "\"switch_seconds\"", "\"seconds\""),
        replaced(right, "\"correction\":2.5", "\"correction\":0"),
        replaced(right, "\"failures\":2", "\"failures\":0"), std::string("[1]"),
        std::string("{")}) {
    CAPTURE(wrong);
    CHECK_THAT(problem_of(wrong), Catch::Contains("state.json: planner: "));
  }
}

}  // namespace copus
