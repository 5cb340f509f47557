// The golden models through the commands a user types: import, prepare, eval, train from them.
#include <catch2/catch.hpp>
#include <cmath>

#include "support/command.h"
#include "support/reference.h"

using copus::test::Outcome;
using copus::test::Reference;
using copus::test::Workspace;
using nlohmann::json;

TEST_CASE(
    "import, prepare, eval and train from a Hugging Face directory give the reference's numbers "
    "(E2)") {
  for (const char* name : copus::test::kReferenceNames) {
    CAPTURE(name);
    Reference const reference(name);
    Workspace const here;
    REQUIRE(here.copus("import '" + reference.directory + "' --out model").code == 0);
    REQUIRE(
        here.copus("prepare --tokenizer bytes --out data '" + reference.directory + "/text.txt'")
            .code == 0);
    Outcome const evaluated = here.copus("eval model --data data --seq-len 32 --json");
    INFO(evaluated.err);
    REQUIRE(evaluated.code == 0);
    double const expected = reference.values["loss"];
    CHECK(std::abs(json::parse(evaluated.out)["loss"].get<double>() - expected) < 1e-6 * expected);

    here.write(
        "c.json",
        R"({"model": {"from": "model", "seq_len": 32}, "data": {"train": "data", "shuffle": false},
      "batch": {"sequences": 8, "micro": 2}, "optimizer": {"lr": 1e-3, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8,
      "weight_decay": 0.1, "clip": 1.0}, "train": {"tokens": 2048}, "run_dir": "run"})");
    Outcome const trained = here.copus("train c.json");
    INFO(trained.err);
    REQUIRE(trained.code == 0);
    std::size_t step = 0;
    for (const json& line : here.metrics("run")) {
      if (line.contains("event")) continue;
      double const loss = reference.values["train"]["losses"][step];
      double const norm = reference.values["train"]["grad_norms"][step];
      CHECK(std::abs(line["loss"].get<double>() - loss) < 5e-6 * loss);
      CHECK(std::abs(line["grad_norm"].get<double>() - norm) < 5e-5 * norm);
      ++step;
    }
    CHECK(step == 8);
  }
}
