#include "copus/state/inspect.h"

#include <catch2/catch.hpp>
#include <numeric>

#include "state_fixture.h"

using namespace copus;
using namespace copus::test;
namespace fs = std::filesystem;

TEST_CASE("a model directory is described by its tensors, in the order of their bytes") {
  for (const std::string& name : kGolden) {
    INFO(name);
    ModelReport const report = inspect_model(golden(name));
    CHECK(report.problems.empty());
    CHECK_FALSE(report.checkpoint);
    CHECK_FALSE(report.summary.has_value());
    REQUIRE(report.model.has_value());
    auto const file = SafetensorsFile::open(golden(name) + "/model.safetensors");
    REQUIRE(report.tensors.size() == file.tensors().size());
    std::int64_t at = 0;
    for (const StoredTensor& t : report.tensors) {
      const TensorEntry& entry = file.tensors().at(t.name);
      CHECK(entry.begin == at);
      at += t.bytes;
      CHECK(t.shape == entry.shape);
      CHECK((t.dtype == "F32" && t.file == "model.safetensors"));
    }
    CHECK(report.bytes == at);
    CHECK(report.bytes == 4 * parameter_count(*report.model));
  }
}

TEST_CASE(
    "an imported checkpoint is complete until a byte of it changes, and is then still described") {
  TempFolder const folder;
  std::string const dir = folder / "in";
  import_checkpoint(golden("qwen2"), dir);
  ModelReport const whole = inspect_model(dir);
  CHECK(whole.checkpoint);
  CHECK(whole.format == 1);
  CHECK(whole.problems.empty());
  REQUIRE(whole.summary.has_value());
  CHECK_FALSE(whole.summary->has_optimizer);
  std::string const path = dir + "/model.safetensors", bytes = read_bytes(path);
  std::string damaged = bytes;
  damaged.back() = static_cast<char>(damaged.back() ^ 1);
  write_bytes(path, damaged);
  ModelReport const corrupt = inspect_model(dir);
  REQUIRE(corrupt.problems.size() == 1);
  CHECK(names(corrupt.problems[0], "model.safetensors: corrupt"));
  CHECK(corrupt.tensors.size() == whole.tensors.size());
  // Cut inside its header: nothing of it can be listed, and both readers' complaints are told.
  write_bytes(path, bytes.substr(0, 100));
  ModelReport const cut = inspect_model(dir);
  CHECK(cut.tensors.empty());
  REQUIRE(cut.problems.size() == 2);
  CHECK(names(cut.problems[0], "100 bytes where"));
  CHECK(names(cut.problems[1], "not a valid safetensors file"));
  CHECK(cut.summary.has_value());
  write_bytes(path, bytes);
  write_bytes(dir + "/state.json", "{}");
  ModelReport const lost = inspect_model(dir);
  CHECK(lost.checkpoint);
  CHECK_FALSE(lost.summary.has_value());
  REQUIRE(lost.problems.size() == 1);
  CHECK(names(lost.problems[0], "state.json: damaged"));
  CHECK(lost.tensors.size() == whole.tensors.size());
}

TEST_CASE("a model that could not be trained here is listed, with the reason") {
  TempFolder const folder;
  std::string const dir = copy_golden(folder, "llama-gqa");
  auto config = config_of(dir);
  config["hidden_act"] = "relu";
  set_config(dir, config);
  ModelReport const report = inspect_model(dir);
  CHECK_FALSE(report.model.has_value());
  CHECK_FALSE(report.tensors.empty());
  REQUIRE(report.problems.size() == 1);
  CHECK(names(report.problems[0], "hidden_act"));
  config = config_of(golden("llama-gqa"));
  config["num_hidden_layers"] = 4;
  set_config(dir, config);
  ModelReport const other = inspect_model(dir);
  CHECK(other.problems.size() == 9);  // the tensors of a layer that is not there
  CHECK(names(other.problems[0], "model.layers.3."));
}
