#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "unit/core/config_fixture.h"

using namespace copus;

namespace {

std::filesystem::path root() {
  return std::filesystem::path(COPUS_TEST_DIR).parent_path();
}

Config again(const Config& config, ConfigUse use) {
  std::vector<std::string> warnings;
  Config const back = parse_config(to_json(config).dump(2), "other.json", {}, use, warnings);
  CHECK(warnings == std::vector<std::string>{});
  return back;
}

// Every key at a value other than its default.
const char* const kEverything = R"({
  "model": {"family": "qwen2", "layers": 3, "hidden": 96, "heads": 6, "kv_heads": 3, "ffn": 200,
            "vocab": 999, "seq_len": 48, "max_positions": 96, "tie_embeddings": true,
            "rope_theta": 123456.7, "norm_eps": 3e-7, "dropout": 0.15,
            "rope_scaling": {"factor": 8.5, "low_freq_factor": 1.5, "high_freq_factor": 3.5,
                             "original_max_positions": 24}},
  "data": {"train": [{"path": "a", "weight": 0.3}, "b"], "val": ["c/*.bin"], "epochs": 3,
           "shuffle": false},
  "batch": {"sequences": 16, "micro": 4, "min": 8, "max": 128, "schedule": "0:16 2M:64"},
  "optimizer": {"name": "adamw", "lr": 0.1, "beta1": 0.8, "beta2": 0.999, "eps": 1e-9,
                "weight_decay": 0.01, "clip": 0.7},
  "schedule": {"kind": "wsd", "warmup_tokens": "1K", "decay_tokens": "3K", "min_lr_ratio": 0.3},
  "batch_rule": {"lr": "sqrt", "beta": "half_life", "weight_decay": "timescale",
                 "reference_batch": 16},
  "train": {"tokens": "4M", "seed": 18446744073709551615, "precision": "bf16", "emulate_bf16": true,
            "eval_every_tokens": "1K", "eval_tokens": "2K", "deterministic": false,
            "max_skipped_steps": 3},
  "parallel": {"dp": 2, "tp": 3, "pp": 2, "virtual_stages": 2, "zero": 1,
               "sequence_parallel": true, "recompute": "selective"},
  "gns": {"every_steps": 4, "half_life_tokens": 77, "confidence": 0.8},
  "adapt": {"mode": "act", "interval_steps": 10, "objective": "normalized", "calibration": 2.0,
            "margin": 0.1, "horizon_tokens": 99, "min_dwell_steps": 7,
            "check_every_tokens": "1M", "check_tokens": "9K", "script": [{"step": 3, "batch": 32, "micro": 2, "dp": 1, "tp": 2, "pp": 4},
                       {"tokens": "2M", "batch": 64}]},
  "cluster": {"kernels": {"attention": "flash1", "norm": "plain"}, "hardware": "h100-sxm",
              "nodes": 2, "gpus_per_node": 8, "internode_gbps_per_gpu": 50.5},
  "checkpoint": {"every_tokens": "5K", "keep": 9, "async": true},
  "log": {"every_steps": 5, "tensorboard": true, "profile_steps": "20-22"},
  "device": "cuda", "transport": "nccl", "run_dir": "somewhere"})";

// Rows "| `key` | meaning | unit | default | accepted |" of the document: key to default cell.
std::map<std::string, std::string> documented_defaults() {
  std::ifstream file(root() / "docs/configuration.md");
  REQUIRE(file);
  std::map<std::string, std::string> rows;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("| `")) continue;
    std::vector<std::string> cells;
    std::istringstream stream(line);
    for (std::string cell; std::getline(stream, cell, '|');) cells.push_back(cell);
    REQUIRE(cells.size() == 6);
    std::string const key = cells[1].substr(2, cells[1].find('`', 2) - 2);
    REQUIRE(rows.emplace(key, cells[4]).second);
  }
  return rows;
}

std::string first_quoted(const std::string& cell) {
  std::size_t const open = cell.find('`');
  if (open == std::string::npos) return "";
  return cell.substr(open + 1, cell.find('`', open + 1) - open - 1);
}

}  // namespace

TEST_CASE("a configuration with every key set comes back exactly from its JSON") {
  Outcome const got = parse(kEverything);
  REQUIRE(got.problems == std::vector<std::string>{});
  CHECK(again(got.config, ConfigUse::train) == got.config);
}

TEST_CASE("the test configuration sets every key to something other than its default") {
  nlohmann::json const written = to_json(parse(kEverything).config);
  for (const ConfigKey& key : config_keys()) {
    INFO(key.path);
    // The only optimizer there is; preset and from exclude the sizes.
    if (key.path == "optimizer.name" || key.path == "model.preset" || key.path == "model.from")
      continue;
    std::string pointer = "/" + key.path;
    std::replace(pointer.begin(), pointer.end(), '.', '/');
    nlohmann::json::json_pointer const place(pointer);
    REQUIRE(written.contains(place));
    CHECK(written.at(place).dump() != key.default_json);
  }
}

TEST_CASE("every preset divides, and comes back exactly as plain sizes") {
  std::vector<std::string> const names = model_preset_names();
  CHECK(names.size() == 16);
  for (const std::string& name : names) {
    INFO(name);
    Outcome const got =
        parse(R"({"model": {"preset": ")" + name + R"("}, "batch": {"sequences": 8}})", {},
              ConfigUse::plan);
    REQUIRE(got.problems == std::vector<std::string>{});
    CHECK(check_sizes(got.config) == std::vector<std::string>{});
    CHECK(got.config.model.preset.empty());
    CHECK(to_json(got.config)["model"].contains("layers"));
    CHECK(again(got.config, ConfigUse::plan) == got.config);
  }
}

TEST_CASE(
    "linear RoPE scaling is written without what belongs to llama3, and read back as itself") {
  Outcome const got = with({{"model.rope_scaling", R"({"type": "linear", "factor": 2.5})"}});
  REQUIRE(got.problems == std::vector<std::string>{});
  CHECK(to_json(got.config)["model"]["rope_scaling"] ==
        nlohmann::json{{"type", "linear"}, {"factor", 2.5}});
  CHECK(again(got.config, ConfigUse::train) == got.config);
}

TEST_CASE("a model given by from stays so, with seq_len and dropout, sizes known or not") {
  Outcome got = parse(
      R"({"model": {"from": "ckpt", "dropout": 0.5}, "data": {"train": "x"},
          "batch": {"sequences": 8}, "train": {"tokens": 1}})");
  REQUIRE(got.problems == std::vector<std::string>{});
  CHECK(to_json(got.config)["model"] == nlohmann::json{{"from", "ckpt"}, {"dropout", 0.5}});
  CHECK(again(got.config, ConfigUse::train) == got.config);
  got.config.model.layers = 12;  // as resolve_model would
  got.config.model.seq_len = 64;
  CHECK(to_json(got.config)["model"] ==
        nlohmann::json{{"from", "ckpt"}, {"seq_len", 64}, {"dropout", 0.5}});
}

TEST_CASE("the document has every key of the table with its default, and no other key") {
  std::map<std::string, std::string> const rows = documented_defaults();
  std::set<std::string> known;
  for (const ConfigKey& key : config_keys()) {
    INFO(key.path);
    known.insert(key.path);
    REQUIRE(rows.contains(key.path));
    if (key.default_json != "null") CHECK(first_quoted(rows.at(key.path)) == key.default_json);
  }
  for (const auto& [key, cell] : rows) {
    INFO(key);
    CHECK(known.contains(key));
  }
}

TEST_CASE("every configuration that we ship is read without a problem or a warning") {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(root() / "configs")) {
    if (entry.path().extension() != ".json") continue;
    INFO(entry.path());
    ++files;
    std::vector<std::string> warnings;
    Config const config = read_config(entry.path().string(), {}, ConfigUse::train, warnings);
    CHECK(warnings == std::vector<std::string>{});
    CHECK(again(config, ConfigUse::train) == config);
  }
  CHECK(files >= 7);
}
