// The run that tests of what follows a run begin with.
#pragma once
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "support/command.h"
#include "support/reference.h"

namespace copus::test {

// Four steps from a golden model, and their checkpoint, in run/; c.json is its configuration.
inline void short_run(const Workspace& here) {
  Reference const reference("llama-tied");
  REQUIRE(here.copus("import '" + reference.directory + "' --out source").code == 0);
  REQUIRE(here.copus("prepare --tokenizer bytes --out data '" + reference.directory + "/text.txt'")
              .code == 0);
  here.write("c.json", R"({"model": {"from": "source", "seq_len": 32}, "data": {"train": "data"},
                          "batch": {"sequences": 8}, "train": {"tokens": 1024}, "run_dir": "run"})");
  Outcome const trained = here.copus("train c.json --threads 1");
  INFO(trained.err);
  REQUIRE(trained.code == 0);
}

inline std::vector<nlohmann::json> steps_of(const Workspace& here, const std::string& run) {
  std::vector<nlohmann::json> steps;
  for (const nlohmann::json& line : here.metrics(run))
    if (!line.contains("event")) steps.push_back(line);
  return steps;
}

}  // namespace copus::test
