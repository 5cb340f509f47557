#include "copus/state/hf.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <nlohmann/json.hpp>

#include "state_fixture.h"

using namespace copus;
using namespace copus::test;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

std::vector<float> read_whole(const HfModel& model, const Param& param) {
  std::vector<float> out(static_cast<std::size_t>(param.numel()));
  model.read(param, {{0, 0}, param.size}, out);
  return out;
}
const Param& find(const std::vector<Param>& table, const std::string& name) {
  for (const Param& p : table)
    if (p.name == name) return p;
  throw std::out_of_range(name);
}

// A half-precision number that needs no rounding, from its definition: sign, exponent + 15,
// fraction.
std::string f16_bytes(float x) {
  int exponent = 0;
  double const fraction = std::frexp(std::abs(static_cast<double>(x)), &exponent);
  unsigned bits = std::signbit(x) ? 0x8000u : 0u;
  if (x != 0.0f) {
    bits |= static_cast<unsigned>(exponent - 1 + 15) << 10;
    bits |= static_cast<unsigned>((2.0 * fraction - 1.0) * 1024.0);
  }
  return {static_cast<char>(bits & 255u), static_cast<char>(bits >> 8)};
}

}  // namespace

TEST_CASE("R24: a written config.json reads back as the same model, for every family") {
  TempFolder const folder;
  for (const std::string& name : kGolden) {
    ModelConfig model = read_hf_config(golden(name));
    if (name == "llama-gqa") model.rope_scaling = RopeScaling{32.0, 1.0, 4.0, 8192};
    json const written = to_hf_config(model);
    set_config(folder.path, written);
    CHECK(read_hf_config(folder.path) == model);
    json const source = config_of(golden(name));
    for (const char* key :
         {"model_type", "architectures", "vocab_size", "hidden_size", "intermediate_size",
          "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "rope_theta",
          "rms_norm_eps", "tie_word_embeddings", "max_position_embeddings", "n_embd", "n_layer",
          "n_head", "n_positions", "layer_norm_epsilon", "torch_dtype"}) {
      INFO(name << " " << key);
      if (source.contains(key)) CHECK(written.value(key, json()) == source.at(key));
    }
  }
  CHECK(to_hf_config(read_hf_config(golden("gpt2"))).at("n_inner") == 192);
}

TEST_CASE("rope scaling is read in both of its spellings") {
  TempFolder const folder;
  std::string const dir = copy_golden(folder, "llama-gqa");
  json const rope = {{"factor", 8.0},
                     {"low_freq_factor", 1.0},
                     {"high_freq_factor", 4.0},
                     {"original_max_position_embeddings", 16}};
  for (const char* type : {"type", "rope_type"}) {
    json config = config_of(golden("llama-gqa"));
    config["rope_scaling"] = rope;
    config["rope_scaling"][type] = "llama3";
    set_config(dir, config);
    CHECK(read_hf_config(dir).rope_scaling == RopeScaling{8.0, 1.0, 4.0, 16});
  }
  json config = config_of(golden("llama-gqa"));
  config.erase("rope_theta");
  config["rope_parameters"] = rope;
  config["rope_parameters"]["rope_type"] = "llama3";
  config["rope_parameters"]["rope_theta"] = 123.0;
  set_config(dir, config);
  CHECK(read_hf_config(dir).rope_scaling == RopeScaling{8.0, 1.0, 4.0, 16});
  CHECK(read_hf_config(dir).rope_theta == 123.0);
  config["rope_theta"] = 124.0;
  set_config(dir, config);
  CHECK(names(problems_of([&] { read_hf_config(dir); }), "rope_theta"));
}

TEST_CASE("linear rope scaling is read under both names and written as Hugging Face has it") {
  TempFolder const folder;
  std::string const dir = copy_golden(folder, "qwen2");
  RopeScaling const expected{4.0, 1.0, 4.0, 8192, RopeKind::linear};
  for (const char* type : {"type", "rope_type"}) {
    json config = config_of(golden("qwen2"));
    config["rope_scaling"] = {{type, "linear"}, {"factor", 4.0}};
    set_config(dir, config);
    CHECK(read_hf_config(dir).rope_scaling == expected);
    CHECK(to_hf_config(read_hf_config(dir)).at("rope_scaling") ==
          json{{"rope_type", "linear"}, {"factor", 4.0}});
    // ... and state.json keeps it too.
    import_checkpoint(dir, folder / type);
    CHECK(read_checkpoint_summary(folder / type).model.rope_scaling == expected);
  }
  json config = config_of(golden("qwen2"));
  config["rope_scaling"] = {{"rope_type", "linear"}};
  set_config(dir, config);
  CHECK(names(problems_of([&] { read_hf_config(dir); }), "factor is missing"));
  config["rope_scaling"]["factor"] = -2;
  set_config(dir, config);
  CHECK(names(problems_of([&] { read_hf_config(dir); }), "factor is -2"));
}

TEST_CASE("every unsupported value of a config.json is named at once") {
  TempFolder const folder;
  std::string const dir = copy_golden(folder, "llama-gqa");
  json config = config_of(dir);
  config["attention_bias"] = true;
  config["mlp_bias"] = true;
  config["hidden_act"] = "relu";
  config["head_dim"] = 64;
  config["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 2.0}};
  config["sliding_window"] = 4096;
  config["quantization_config"] = {{"bits", 4}};
  config["num_key_value_heads"] = 4;
  config["layer_types"] = {"sliding_attention"};
  config.erase("intermediate_size");
  set_config(dir, config);
  std::string const text = problems_of([&] { read_hf_config(dir); });
  INFO(text);
  for (const char* part : {"attention_bias is true", "mlp_bias is true", "hidden_act is \"relu\"",
                           "head_dim is 64", "rope_type is \"yarn\"", "sliding_window is 4096",
                           "quantization_config", "num_key_value_heads is 4", "sliding_attention",
                           "intermediate_size is missing", "accepted: \"silu\""}) {
    CHECK(names(text, part));
  }
  for (const auto& [key, value] : std::vector<std::pair<std::string, json>>{
           {"activation_function", "relu"}, {"n_head", 7}, {"scale_attn_weights", false}}) {
    json gpt2 = config_of(golden("gpt2"));
    gpt2[key] = value;
    set_config(dir, gpt2);
    CHECK(names(problems_of([&] { read_hf_config(dir); }), key + " is " + value.dump()));
  }
  set_config(dir, {{"model_type", "mamba"}});
  CHECK(names(problems_of([&] { read_hf_config(dir); }), "\"llama\", \"qwen2\", \"gpt2\""));
  CHECK(names(problems_of([&] { read_hf_config(folder / "none"); }), "missing"));
  write_bytes(dir + "/config.json", "{");
  CHECK(names(problems_of([&] { read_hf_config(dir); }), "not a JSON object"));
}

TEST_CASE("a window that Qwen2 names but does not use is no obstacle") {
  TempFolder const folder;
  std::string const dir = copy_golden(folder, "qwen2");
  json config = config_of(dir);
  config["sliding_window"] = 4096;
  config["use_sliding_window"] = false;
  set_config(dir, config);
  CHECK(read_hf_config(dir).layers == 2);
  config["use_sliding_window"] = true;
  set_config(dir, config);
  CHECK(names(problems_of([&] { read_hf_config(dir); }), "use_sliding_window"));
}

TEST_CASE("R12: GPT-2's fused (in, out) tensor gives q, k and v as (out, in), element by element") {
  ModelConfig const model = read_hf_config(golden("gpt2"));
  HfModel const hf(golden("gpt2"), model);
  SafetensorsFile const file = SafetensorsFile::open(golden("gpt2") + "/model.safetensors");
  auto const fused = read_all(file, "transformer.h.1.attn.c_attn.weight");
  auto const bias = read_all(file, "transformer.h.1.attn.c_attn.bias");
  auto const table = parameter_table(model);
  std::size_t const c = 48;
  std::size_t part = 0;
  for (const char* name : {"q", "k", "v"}) {
    auto const w = read_whole(hf, find(table, fmt::format("layers.1.attn.{}.weight", name)));
    auto const b = read_whole(hf, find(table, fmt::format("layers.1.attn.{}.bias", name)));
    int wrong = 0;
    for (std::size_t o = 0; o < c; ++o) {
      for (std::size_t i = 0; i < c; ++i) {
        if (w[o * c + i] != fused[i * 3 * c + part * c + o]) ++wrong;
      }
      if (b[o] != bias[part * c + o]) ++wrong;
    }
    CHECK(wrong == 0);
    ++part;
  }
}

TEST_CASE("R12: any box of any tensor equals that slice of the whole") {
  for (const std::string& name : kGolden) {
    ModelConfig const model = read_hf_config(golden(name));
    HfModel const hf(golden(name), model);
    for (const Param& param : parameter_table(model)) {
      auto const whole = read_whole(hf, param);
      std::int64_t const rows = param.size[0], cols = param.size[1];
      for (const Box& box :
           {Box{{0, 0}, {rows, (cols + 1) / 2}}, Box{{rows / 2, 0}, {rows - rows / 2, cols}},
            Box{{rows / 3, cols / 3}, {rows - rows / 3, cols - cols / 3}},
            Box{{rows - 1, cols - 1}, {1, 1}}, Box{{0, 0}, {0, cols}}}) {
        std::vector<float> part(static_cast<std::size_t>(box.numel()));
        hf.read(param, box, part);
        bool same = true;
        for (std::int64_t r = 0; r < box.size[0]; ++r) {
          for (std::int64_t k = 0; k < box.size[1]; ++k) {
            same =
                same &&
                part[static_cast<std::size_t>(r * box.size[1] + k)] ==
                    whole[static_cast<std::size_t>((box.begin[0] + r) * cols + box.begin[1] + k)];
          }
        }
        INFO(name << " " << param.name);
        CHECK(same);
      }
    }
  }
}

TEST_CASE("missing, unused and misshapen tensors are all named in one error") {
  TempFolder const folder;
  std::string const dir = copy_golden(folder, "llama-gqa");
  std::string const path = dir + "/model.safetensors";
  auto tensors = tensors_of(path);
  for (Tensor& t : tensors) {
    if (t.name == "model.layers.2.mlp.up_proj.weight") t.shape = {t.shape[1], t.shape[0]};
    if (t.name == "model.norm.weight") t.name = "model.normal.weight";
    if (t.name == "lm_head.weight") t.name = "head.weight";
  }
  write_tensors(path, tensors);
  ModelConfig const model = read_hf_config(dir);
  std::string const text = problems_of([&] { HfModel(dir, model); });
  INFO(text);
  for (const char* part : {"\"model.norm.weight\" is missing", "\"lm_head.weight\" is missing",
                           "\"model.normal.weight\" is not", "\"head.weight\" is not",
                           "up_proj.weight\" has shape [48, 112]", "[112, 48]"}) {
    CHECK(names(text, part));
  }
}

TEST_CASE("R24: every tensor of another shape is named, and every missing one, all at once") {
  for (const std::string& name : kGolden) {
    TempFolder const folder;
    std::string const dir = copy_golden(folder, name), path = dir + "/model.safetensors";
    ModelConfig const model = read_hf_config(dir);
    auto const tensors = tensors_of(path);
    auto bent = tensors;
    for (Tensor& t : bent) t.shape.push_back(1);  // as many elements, in one dimension more
    write_tensors(path, bent);
    std::string const shapes = problems_of([&] { HfModel(dir, model); });
    write_tensors(path, {{"stranger", {1}, {0.0f}}});
    std::string const missing = problems_of([&] { HfModel(dir, model); });
    for (const Tensor& t : tensors) {
      INFO(name << " " << t.name);
      CHECK(names(shapes, "\"" + t.name + "\" has shape ["));
      CHECK(names(missing, "\"" + t.name + "\" is missing"));
    }
    CHECK(names(missing, "\"stranger\" is not"));
  }
}

TEST_CASE("GPT-2 without the prefix reads the same, and stored buffers are passed over") {
  TempFolder const folder;
  std::string const dir = copy_golden(folder, "gpt2");
  auto tensors = tensors_of(dir + "/model.safetensors");
  for (Tensor& t : tensors) t.name = t.name.substr(std::string("transformer.").size());
  tensors.push_back({"h.0.attn.bias", {1, 1, 2, 2}, {1, 0, 1, 1}});
  tensors.push_back({"h.1.attn.masked_bias", {}, {-1e4f}});
  write_tensors(dir + "/model.safetensors", tensors);
  ModelConfig const model = read_hf_config(dir);
  HfModel const bare(dir, model), full(golden("gpt2"), model);
  for (const Param& param : parameter_table(model)) {
    CHECK(read_whole(bare, param) == read_whole(full, param));
  }
}

TEST_CASE(
    "a tied model's stored head is accepted as a repeat of the embedding and refused otherwise") {
  TempFolder const folder;
  std::string const dir = copy_golden(folder, "llama-tied");
  auto tensors = tensors_of(dir + "/model.safetensors");
  for (const Tensor& t : std::vector(tensors)) {
    if (t.name == "model.embed_tokens.weight")
      tensors.push_back({"lm_head.weight", t.shape, t.values});
  }
  write_tensors(dir + "/model.safetensors", tensors);
  ModelConfig const model = read_hf_config(dir);
  CHECK(problems_of([&] { HfModel(dir, model); }).empty());
  tensors.back().values[5000] += 1.0f;
  write_tensors(dir + "/model.safetensors", tensors);
  CHECK(names(problems_of([&] { HfModel(dir, model); }), "differs from"));
}

TEST_CASE("parts with an index read as one model; a wrong index is named") {
  TempFolder const folder;
  std::string const dir = copy_golden(folder, "qwen2");
  auto const tensors = tensors_of(dir + "/model.safetensors");
  std::filesystem::remove(dir + "/model.safetensors");
  auto const half = tensors.begin() + static_cast<std::ptrdiff_t>(tensors.size() / 2);
  write_tensors(dir + "/a.safetensors", {tensors.begin(), half});
  write_tensors(dir + "/b.safetensors", {half, tensors.end()});
  json index = {{"weight_map", json::object()}};
  for (auto t = tensors.begin(); t != tensors.end(); ++t) {
    index["weight_map"][t->name] = t < half ? "a.safetensors" : "b.safetensors";
  }
  std::string const path = dir + "/model.safetensors.index.json";
  write_bytes(path, index.dump());
  ModelConfig const model = read_hf_config(dir);
  HfModel const parts(dir, model), whole(golden("qwen2"), model);
  for (const Param& param : parameter_table(model)) {
    CHECK(read_whole(parts, param) == read_whole(whole, param));
  }
  index["weight_map"]["model.norm.weight"] = "a.safetensors";
  write_bytes(path, index.dump());
  CHECK(names(problems_of([&] { HfModel(dir, model); }), "model.norm.weight"));
  for (const std::string& no_file : {std::string("../../etc/passwd"), std::string(".."),
                                     std::string("."), std::string(), std::string("a\0b", 3)}) {
    CAPTURE(no_file);
    index["weight_map"]["model.norm.weight"] = no_file;
    write_bytes(path, index.dump());
    CHECK(names(problems_of([&] { HfModel(dir, model); }), "accepted: a file name"));
  }
  std::filesystem::create_directory(dir + "/c.safetensors");
  index["weight_map"]["model.norm.weight"] = "c.safetensors";
  write_bytes(path, index.dump());
  CHECK(names(problems_of([&] { HfModel(dir, model); }), "expected a safetensors file"));
}

TEST_CASE("an index and its parts hold the same tensors, or each that only one has is named") {
  TempFolder const folder;
  std::string const dir = copy_golden(folder, "llama-gqa");
  auto tensors = tensors_of(dir + "/model.safetensors");
  fs::remove(dir + "/model.safetensors");
  // A buffer that is derived, and that loaders pass over, may be in either alone.
  tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", {1}, {1.0f}});
  write_tensors(dir + "/a.safetensors", tensors);
  ModelConfig const model = read_hf_config(dir);
  auto const problems_with = [&](const json& map) {
    write_bytes(dir + "/model.safetensors.index.json", json{{"weight_map", map}}.dump());
    return problems_of([&] { HfModel(dir, model); });
  };
  json whole = json::object();
  for (const Tensor& t : tensors) whole[t.name] = "a.safetensors";
  CHECK(problems_with(whole).empty());
  whole.erase("model.layers.0.self_attn.rotary_emb.inv_freq");
  CHECK(problems_with(whole).empty());
  json less = whole;
  for (const char* name : {"model.norm.weight", "model.layers.1.mlp.up_proj.weight"})
    less.erase(name);
  std::string const omitted = problems_with(less);
  CHECK(names(omitted, "/a.safetensors: tensor \"model.norm.weight\" is not in "));
  CHECK(names(omitted, "\"model.layers.1.mlp.up_proj.weight\" is not in "));
  CHECK_FALSE(names(omitted, "lm_head"));
  json more = whole;
  more["model.extra.weight"] = "a.safetensors";
  CHECK(names(problems_with(more), "/a.safetensors: has no tensor \"model.extra.weight\""));
}

TEST_CASE("parts that an index names and the directory lacks are named, all of them") {
  TempFolder const folder;
  std::string const dir = copy_golden(folder, "llama-tied");
  fs::rename(dir + "/model.safetensors", dir + "/b.safetensors");
  json const map = {{"x", "a.safetensors"}, {"y", "b.safetensors"}, {"z", "c.safetensors"}};
  write_bytes(dir + "/model.safetensors.index.json", json{{"weight_map", map}}.dump());
  std::string const text = problems_of([&] { HfModel(dir, read_hf_config(dir)); });
  CHECK(names(text, "/a.safetensors: missing"));
  CHECK(names(text, "/c.safetensors: missing"));
  CHECK_FALSE(names(text, "/b.safetensors: missing"));
}

TEST_CASE("parts in bf16 and fp16 read as the numbers they stand for") {
  TempFolder const folder;
  std::string const dir = copy_golden(folder, "gpt2");
  auto tensors = tensors_of(dir + "/model.safetensors");
  fs::remove(dir + "/model.safetensors");
  // Multiples of 1/32 below 4: exact in eight significant bits, and so in eleven.
  for (Tensor& t : tensors)
    for (std::size_t i = 0; i < t.values.size(); ++i)
      t.values[i] = static_cast<float>(static_cast<int>((i * 37) % 255) - 127) / 32.0f;
  auto const half = tensors.begin() + static_cast<std::ptrdiff_t>(tensors.size() / 2);
  write_tensors(dir + "/a.safetensors", {tensors.begin(), half}, DType::bf16);
  json header = json::object();
  std::string data;
  for (auto t = half; t != tensors.end(); ++t) {
    auto const begin = data.size();
    for (float const x : t->values) data += f16_bytes(x);
    header[t->name] = {
        {"dtype", "F16"}, {"shape", t->shape}, {"data_offsets", {begin, data.size()}}};
  }
  write_bytes(dir + "/b.safetensors", safetensors_bytes(header.dump(), data));
  json map = json::object();
  for (auto t = tensors.begin(); t != tensors.end(); ++t)
    map[t->name] = t < half ? "a.safetensors" : "b.safetensors";
  write_bytes(dir + "/model.safetensors.index.json", json{{"weight_map", map}}.dump());
  import_checkpoint(dir, folder / "in");
  SafetensorsFile const file = SafetensorsFile::open(folder / "in/model.safetensors");
  for (const Tensor& t : tensors) {
    INFO(t.name);
    CHECK(read_all(file, t.name) == t.values);
  }
}

TEST_CASE("model.from fills in the sizes and keeps the user's window and dropout") {
  Config config;
  config.model.from = golden("gpt2");
  config.batch.sequences = 8;
  resolve_model(config);
  CHECK(config.model.seq_len == 64);
  CHECK(config.model.ffn == 192);
  CHECK(config.model.dropout == 0.0);
  config = {};
  config.model.from = golden("gpt2");
  config.model.seq_len = 32;
  config.model.dropout = 0.25;
  config.batch.sequences = 8;
  resolve_model(config);
  CHECK(config.model.seq_len == 32);
  CHECK(config.model.dropout == 0.25);
  CHECK(config.model.from == golden("gpt2"));
  config.model.seq_len = 65;
  CHECK(names(problems_of([&] { resolve_model(config); }), "seq_len"));
}
