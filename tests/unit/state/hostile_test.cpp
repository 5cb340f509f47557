// Files that are well formed and mean harm: refused in a sentence, at a cost of their own size.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "state/checkpoint_files.h"
#include "state_fixture.h"

using namespace copus;
using namespace copus::test;
namespace fs = std::filesystem;
using nlohmann::json;

TEST_CASE("files of brackets and layers without tensors are refused in a sentence") {
  TempFolder const folder;
  std::string const dir = copy_golden(folder, "llama-gqa");
  std::string const deep(1000000, '['),
      nested = "{\"a\":" + deep + std::string(deep.size(), ']') + "}";
  ModelConfig const model = read_hf_config(dir);
  write_bytes(dir + "/state.json", nested);
  CHECK(names(problems_of([&] { HfModel(dir, model); }), "state.json: damaged"));
  CHECK(names(problems_of([&] { read_checkpoint_summary(dir); }), "deeper than 64"));
  fs::remove(dir + "/state.json");
  auto config = config_of(dir);
  config["num_hidden_layers"] = 65536;
  set_config(dir, config);
  std::string const phantom = problems_of([&] { HfModel(dir, read_hf_config(dir)); });
  CHECK(names(phantom, "65536 layers, and the files hold 30 tensors"));
  CHECK(phantom.size() < 300);
  write_bytes(dir + "/config.json", "{\"model_type\":" + nested + "}");
  CHECK(names(problems_of([&] { read_hf_config(dir); }), "deeper than 64"));
  fs::remove(dir + "/model.safetensors");
  write_bytes(dir + "/model.safetensors.index.json", nested);
  CHECK(names(problems_of([&] { HfModel(dir, model); }), "deeper than 64"));
}

TEST_CASE("a state.json that is well formed and says impossible things is damaged") {
  TempFolder const folder;
  std::string const dir = folder / "in";
  import_checkpoint(golden("qwen2"), dir);
  json const right = json::parse(read_bytes(dir + "/state.json"));
  auto const refused = [&](const char* pointer, const json& value, const char* named) {
    INFO(pointer);
    json state = right;
    state[json::json_pointer(pointer)] = value;
    write_bytes(dir + "/state.json", state_text(state));
    std::string const text = problems_of([&] { read_checkpoint_summary(dir); });
    CHECK(names(text, named));
    // Whoever meets the damage says so in the same way.
    if (names(pointer, "/files"))
      CHECK(problems_of([&] { HfModel(dir, read_hf_config(dir)); }) == text);
  };
  refused("/files", 3, "names no files");
  refused("/files", json::array({1, 2}), "names no files");
  refused("/files/config.json", 3, "file \"config.json\"");
  refused("/files/config.json/bytes", -1, "file \"config.json\"");
  refused("/files/config.json/bytes", 1.5, "file \"config.json\"");
  refused("/files/config.json/xxh3", "0123", "file \"config.json\"");
  refused("/model/family", "gtp", "gtp");
  refused("/counters/step", "one", "damaged");
  json state = right;
  for (const char* name : {"a", "b", "c"})
    state["files"][name] = {{"bytes", std::int64_t{1} << 62}, {"xxh3", "0123456789abcdef"}};
  write_bytes(dir + "/state.json", state_text(state));
  CHECK(names(problems_of([&] { read_checkpoint_summary(dir); }), "do not fit 63 bits"));
}
