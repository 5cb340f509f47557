// The JSON formats.
#include <nlohmann/json.hpp>

#include "copus/core/config_io.h"
#include "copus/core/error.h"
#include "copus/core/json_text.h"
#include "copus/parallel/params.h"
#include "copus/state/hf.h"
#include "fuzz/scratch.h"
#include "state/checkpoint_state.h"

namespace copus::test {

using nlohmann::json;

void fuzz_config(Bytes bytes) {
  if (bytes.empty()) return;
  ConfigUse const use = bytes[0] % 2 == 0 ? ConfigUse::train : ConfigUse::plan;
  std::vector<std::string> warnings;
  try {
    Config const config =
        parse_config(std::string(text_of(bytes.subspan(1))), "fuzz.json", {}, use, warnings);
    // What was accepted is written so that it is accepted again, as the same.
    Config const again = parse_config(to_json(config).dump(), "fuzz.json", {}, use, warnings);
    COPUS_CHECK(again == config, "a resolved configuration is read as itself");
  } catch (const ConfigError&) {
  }
}

void fuzz_hf_config(Bytes bytes) {
  static ScratchFolder const folder;
  folder.write("config.json", text_of(bytes));
  ModelConfig model;
  try {
    model = read_hf_config(folder.path());
  } catch (const ConfigError&) {
    return;
  }
  folder.write("config.json", to_hf_config(model).dump());
  COPUS_CHECK(read_hf_config(folder.path()) == model, "a written config.json is read as itself");
}

void fuzz_hf_index(Bytes bytes) {
  static ScratchFolder const folder;
  static ModelConfig const model = [] {
    ModelConfig m;
    m.layers = m.heads = m.kv_heads = 1;
    m.hidden = m.ffn = m.vocab = m.seq_len = m.max_positions = 2;
    std::vector<SafetensorsWriter::Item> items[2];
    for (const Param& p : parameter_table(m)) {
      HfPlace const place = hf_place(m, p);
      std::vector<std::int64_t> shape{place.shape[0]};
      if (place.dims == 2) shape.push_back(place.shape[1]);
      items[p.layer < 0 ? 0 : 1].push_back({place.name, shape});
    }
    for (int i = 0; i < 2; ++i) {
      std::int64_t numel = 0;
      for (const auto& item : items[i]) numel += TensorEntry{"F32", item.shape, 0, 0}.numel();
      SafetensorsWriter writer(folder.path() + (i == 0 ? "/a" : "/b"), items[i], {});
      writer.append(std::vector<float>(static_cast<std::size_t>(numel), 1.0f));
      writer.finish();
    }
    return m;
  }();
  folder.write("model.safetensors.index.json", text_of(bytes));
  try {
    HfModel const opened(folder.path(), model);
    for (const Param& p : parameter_table(model)) {
      std::vector<float> values(static_cast<std::size_t>(p.numel()));
      opened.read(p, {{0, 0}, p.size}, values);
    }
  } catch (const ConfigError&) {
  }
}

void fuzz_state(Bytes bytes) {
  static ScratchFolder const folder;
  if (nests_deeper(text_of(bytes))) return;  // the target's own parser could not take it either
  json const state = json::parse(text_of(bytes), nullptr, false);
  if (!state.is_object()) return;
  try {
    folder.write("state.json", state_text(state));
    FileSums sums;
    CheckpointSummary const summary = parse_state(folder.path(), sums);
    for (const auto& [name, sum] : sums) file_problem(folder.path(), name, sum, Depth::sizes);
    // Written as we would write it, it says the same.
    folder.write("state.json", state_text(make_state(summary, sums)));
    FileSums again;
    COPUS_CHECK(parse_state(folder.path(), again).model == summary.model && again == sums,
                "a written state.json is read as itself");
  } catch (const ConfigError&) {
  } catch (const json::type_error&) {  // text that is not UTF-8 cannot be written to begin with
  }
}

}  // namespace copus::test
