// A model goes out and comes back through the commands a user types.
#include <catch2/catch.hpp>
#include <cmath>

#include "support/command.h"
#include "support/reference.h"

using copus::test::Outcome;
using copus::test::Reference;
using copus::test::Workspace;
using nlohmann::json;

namespace {

double loss_of(const Workspace& here, const std::string& model) {
  Outcome const outcome = here.copus("eval " + model + " --data data --seq-len 32 --json");
  INFO(outcome.err);
  REQUIRE(outcome.code == 0);
  return json::parse(outcome.out)["loss"];
}

}  // namespace

TEST_CASE("R12, R23: import, export and import again lose nothing that the loss could see") {
  for (const char* name : copus::test::kReferenceNames) {
    CAPTURE(name);
    Reference const reference(name);
    Workspace const here;
    REQUIRE(
        here.copus("prepare --tokenizer bytes --out data '" + reference.directory + "/text.txt'")
            .code == 0);
    REQUIRE(here.copus("import '" + reference.directory + "' --out in").code == 0);
    REQUIRE(here.copus("export in --out out").code == 0);
    REQUIRE(here.copus("import out --out again").code == 0);
    double const expected = reference.values["loss"], loss = loss_of(here, "out");
    CHECK(std::abs(loss - expected) < 1e-6 * expected);
    CHECK(loss_of(here, "in") == loss);
    CHECK(loss_of(here, "again") == loss);
    REQUIRE(here.copus("export in --out half --dtype bf16").code == 0);
    REQUIRE(here.copus("import half --out half-in").code == 0);
    double const half = loss_of(here, "half");
    CHECK(half != loss);
    CHECK(loss_of(here, "half-in") == half);
  }
}

TEST_CASE("export names what it cannot do, with exit code 2") {
  Workspace const here;
  Reference const reference("qwen2");
  REQUIRE(here.copus("export '" + reference.directory + "' --out out").code == 0);
  Outcome const again = here.copus("export '" + reference.directory + "' --out out");
  CHECK(again.code == 2);
  CHECK(again.err.find("out: exists already") != std::string::npos);
  Outcome const type = here.copus("export out --out other --dtype fp16");
  CHECK(type.code == 2);
  CHECK(type.err.find("fp16 not in {fp32,bf16}") != std::string::npos);
  CHECK(here.copus("export nowhere --out other").code == 2);
  CHECK_FALSE(here.has("other"));
}
