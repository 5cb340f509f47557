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

TEST_CASE(
    "R23: models with RoPE scaling have the losses that an independent float64 forward gives") {
  struct Case {
    const char* model;
    json scaling;
    double loss;
  };
  json const linear = {{"rope_type", "linear"}, {"factor", 4.0}},
             llama3 = {{"rope_type", "llama3"},
                       {"factor", 8.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 64}};
  for (const Case& c :
       {Case{"llama-gqa", linear, 5.6958753619021705}, Case{"llama-gqa", llama3, 5.696179073753605},
        Case{"qwen2", linear, 5.626765532805777}, Case{"qwen2", llama3, 5.626799135991317}}) {
    CAPTURE(c.model, c.scaling.dump());
    Reference const reference(c.model);
    Workspace const here;
    std::filesystem::copy(reference.directory, here / "model");
    json config = json::parse(here.read("model/config.json"));
    config["rope_scaling"] = c.scaling;
    here.write("model/config.json", config.dump());
    REQUIRE(here.copus("prepare --tokenizer bytes --out data model/text.txt").code == 0);
    // Through a checkpoint and out again, so that each of the three says the scaling.
    REQUIRE(here.copus("import model --out in").code == 0);
    REQUIRE(here.copus("export in --out out").code == 0);
    Outcome const evaluated = here.copus("eval out --data data --seq-len 32 --json");
    INFO(evaluated.err);
    REQUIRE(evaluated.code == 0);
    CHECK(std::abs(json::parse(evaluated.out)["loss"].get<double>() - c.loss) < 1e-6 * c.loss);
  }
}
