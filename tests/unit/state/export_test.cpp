// Out to Hugging Face: what is written is what was read, and all that a loader asks for.
#include <catch2/catch.hpp>
#include <cmath>
#include <nlohmann/json.hpp>

#include "copus/core/rng.h"
#include "state_fixture.h"

using namespace copus;
using namespace copus::test;
namespace fs = std::filesystem;
using nlohmann::json;

namespace {

const char* const kModelFile = "/model.safetensors";

// To 8 significant bits by the current rounding mode (to the nearest, ties to even): bf16 of a
// normal number, from its definition.
float eight_bits(float x) {
  int exponent = 0;
  double const fraction = std::frexp(static_cast<double>(x), &exponent);
  return static_cast<float>(std::ldexp(std::nearbyint(std::ldexp(fraction, 8)), exponent - 8));
}

bool same_tensors(const std::string& a, const std::string& b) {
  auto const left = SafetensorsFile::open(a), right = SafetensorsFile::open(b);
  bool same = left.tensors().size() == right.tensors().size();
  for (const auto& [name, entry] : left.tensors()) {
    auto const other = right.tensors().find(name);
    same = same && other != right.tensors().end() && other->second.shape == entry.shape &&
           other->second.dtype == entry.dtype && raw_tensor(a, name) == raw_tensor(b, name);
  }
  return same;
}

// A checkpoint as a run writes it: moments, counters, arbitrary weights.
std::string trained(const TempFolder& folder, const ModelConfig& config) {
  auto const table = parameter_table(config);
  FlatLayout const layout = flat_layout(config, {}, 0, 0);
  std::vector<float> values(static_cast<std::size_t>(layout.numel));
  RngStream const stream = stream_of({7, RngPurpose::test, 0, 0});
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = normal(stream, i);
  TrainState state;
  state.master = TensorView(values.data(), DType::f32, {layout.numel});
  state.m = state.v = state.master;
  Counters counters;
  counters.step = 12;
  return save_checkpoint(folder / "run", {config, table, layout}, counters, host_reader(state),
                         {"bytes", 256}, 1)
      .directory;
}

}  // namespace

TEST_CASE("R23: what was imported is exported with every tensor byte for byte") {
  for (const std::string& name : kGolden) {
    INFO(name);
    TempFolder const folder;
    import_checkpoint(golden(name), folder / "in");
    export_checkpoint(folder / "in", folder / "out", DType::f32);
    CHECK(same_tensors(golden(name) + kModelFile, folder / "out/model.safetensors"));
    CHECK(read_hf_config(folder / "out") == read_hf_config(golden(name)));
    // The file as a whole is one function of the model: the order of tensors is ours.
    CHECK(read_bytes(folder / "in/model.safetensors") ==
          read_bytes(folder / "out/model.safetensors"));
    import_checkpoint(folder / "out", folder / "in2");
    export_checkpoint(folder / "in2", folder / "out2", DType::f32);
    for (const char* file : {"/model.safetensors", "/config.json"})
      CHECK(read_bytes(folder / "out" + file) == read_bytes(folder / "out2" + file));
    CHECK_FALSE(fs::exists(folder / "out/state.json"));
  }
}

TEST_CASE("a name like that of the unfinished copy may be the user's, and stays") {
  TempFolder const folder;
  write_bytes(folder / "in.tmp", "precious");
  fs::create_directories(folder / "out.tmp");
  write_bytes(folder / "out.tmp/file", "precious");
  import_checkpoint(golden(kGolden[0]), folder / "in");
  export_checkpoint(folder / "in", folder / "out", DType::f32);
  CHECK(read_bytes(folder / "in.tmp") == "precious");
  CHECK(read_bytes(folder / "out.tmp/file") == "precious");
}

TEST_CASE("bf16 exports are the nearest, ties to even, and go in and out again without a change") {
  for (const std::string& name : kGolden) {
    INFO(name);
    TempFolder const folder;
    export_checkpoint(golden(name), folder / "half", DType::bf16);
    auto const from = SafetensorsFile::open(golden(name) + kModelFile),
               to = SafetensorsFile::open(folder / "half/model.safetensors");
    REQUIRE(to.tensors().size() == from.tensors().size());
    int wrong = 0;
    for (const auto& [tensor, entry] : to.tensors()) {
      CHECK(entry.dtype == "BF16");
      auto const exact = read_all(from, tensor), rounded = read_all(to, tensor);
      REQUIRE(exact.size() == rounded.size());
      for (std::size_t i = 0; i < exact.size(); ++i) wrong += rounded[i] != eight_bits(exact[i]);
    }
    CHECK(wrong == 0);
    CHECK(config_of(folder / "half").at("torch_dtype") == "bfloat16");
    import_checkpoint(folder / "half", folder / "in");
    CHECK(SafetensorsFile::open(folder / "in/model.safetensors").tensors().begin()->second.dtype ==
          "F32");
    export_checkpoint(folder / "in", folder / "again", DType::bf16);
    CHECK(read_bytes(folder / "half/model.safetensors") ==
          read_bytes(folder / "again/model.safetensors"));
  }
}

TEST_CASE(
    "R12: a trained checkpoint's tensors leave in Hugging Face's shapes, nothing else with them") {
  for (const std::string& name : kGolden) {
    INFO(name);
    TempFolder const folder;
    ModelConfig const model = read_hf_config(golden(name));
    std::string const run = trained(folder, model);
    export_checkpoint(run, folder / "out/", DType::f32);
    CHECK(same_tensors(run + kModelFile, folder / "out/model.safetensors"));
    auto const written = SafetensorsFile::open(folder / "out/model.safetensors"),
               reference = SafetensorsFile::open(golden(name) + kModelFile);
    REQUIRE(written.tensors().size() == reference.tensors().size());
    for (const auto& [tensor, entry] : reference.tensors())
      CHECK(written.tensors().at(tensor).shape == entry.shape);
    CHECK(config_of(folder / "out").at("eos_token_id") == 256);
    std::size_t files = 0;
    for (const auto& entry : fs::directory_iterator(folder / "out")) {
      CHECK((entry.path().filename() == "model.safetensors" ||
             entry.path().filename() == "config.json"));
      ++files;
    }
    CHECK(files == 2);
  }
}

TEST_CASE("R24: an exported config.json has every field that a loader of its family reads") {
  std::vector<std::string> const common = {
      "architectures", "model_type",   "vocab_size", "tie_word_embeddings", "torch_dtype",
      "bos_token_id",  "eos_token_id", "use_cache",  "initializer_range"};
  std::vector<std::string> const llama_like = {
      "hidden_size",         "intermediate_size", "num_hidden_layers",       "num_attention_heads",
      "num_key_value_heads", "hidden_act",        "max_position_embeddings", "rms_norm_eps",
      "rope_theta",          "rope_scaling",      "attention_dropout"};
  std::map<std::string, std::vector<std::string>> own = {
      {"llama", {"attention_bias", "mlp_bias", "head_dim", "pretraining_tp"}},
      {"qwen2", {"use_sliding_window", "sliding_window", "max_window_layers"}},
      {"gpt2",
       {"n_embd", "n_layer", "n_head", "n_inner", "n_positions", "activation_function",
        "resid_pdrop", "embd_pdrop", "attn_pdrop", "layer_norm_epsilon", "scale_attn_weights",
        "scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn", "add_cross_attention"}}};
  for (const std::string& name : kGolden) {
    TempFolder const folder;
    export_checkpoint(golden(name), folder / "out", DType::f32);
    json const config = config_of(folder / "out"), source = config_of(golden(name));
    std::string const family = config.at("model_type");
    std::vector<std::string> keys = common;
    keys.insert(keys.end(), own[family].begin(), own[family].end());
    if (family != "gpt2") keys.insert(keys.end(), llama_like.begin(), llama_like.end());
    for (const std::string& key : keys) {
      INFO(name << " " << key);
      CHECK(config.contains(key));
      // n_inner may be null there: four times n_embd. We say it.
      if (source.contains(key) && key != "n_inner") CHECK(config.at(key) == source.at(key));
    }
  }
  ModelConfig model = read_hf_config(golden("gpt2"));
  model.dropout = 0.125;
  TempFolder const folder;
  export_checkpoint(trained(folder, model), folder / "out", DType::f32);
  CHECK(config_of(folder / "out").at("resid_pdrop") == 0.125);
}

TEST_CASE("the tokenizer's files go in and out unchanged, and its ids stay in config.json") {
  TempFolder const folder;
  std::string const dir = copy_golden(folder, "qwen2");
  write_bytes(dir + "/tokenizer.json", "{\"model\": 1}\n");
  write_bytes(dir + "/merges.txt", "a b\n");
  json config = config_of(dir);
  config["pad_token_id"] = 3;
  config["eos_token_id"] = {256, 5};
  set_config(dir, config);
  import_checkpoint(dir, folder / "in");
  export_checkpoint(folder / "in", folder / "out", DType::bf16);
  CHECK(read_bytes(folder / "out/tokenizer.json") == "{\"model\": 1}\n");
  CHECK(read_bytes(folder / "out/merges.txt") == "a b\n");
  CHECK(config_of(folder / "out").at("pad_token_id") == 3);
  CHECK(config_of(folder / "out").at("eos_token_id") == json{256, 5});
}

TEST_CASE(
    "an export into an existing place, or of a damaged checkpoint, is refused and leaves nothing") {
  TempFolder const folder;
  std::string const run = trained(folder, read_hf_config(golden("llama-gqa")));
  write_bytes(folder / "file", "");
  fs::create_directory(folder / "dir");
  fs::create_symlink("nowhere", folder / "link");
  for (const char* out : {"file", "dir", "link"}) {
    CHECK(names(problems_of([&] { export_checkpoint(run, folder / out, DType::f32); }),
                "exists already"));
  }
  CHECK_FALSE(problems_of([&] { export_checkpoint(run, "", DType::f32); }).empty());
  CHECK_FALSE(
      problems_of([&] { export_checkpoint(folder / "dir", folder / "out", DType::f32); }).empty());
  for (const char* file : {"/model.safetensors", "/config.json", "/state.json"}) {
    INFO(file);
    std::string const whole = read_bytes(run + file);
    std::string damaged = whole;
    damaged[whole.size() / 2] = static_cast<char>(damaged[whole.size() / 2] ^ 1);
    write_bytes(run + file, damaged);
    CHECK(names(problems_of([&] { export_checkpoint(run, folder / "out", DType::f32); }), file));
    write_bytes(run + file, whole);
  }
  CHECK_FALSE(fs::exists(folder / "out"));
  for (const fs::directory_entry& entry : fs::directory_iterator(folder.path))
    CHECK(entry.path().filename().string().find("out.tmp") == std::string::npos);
  export_checkpoint(run, folder / "out", DType::f32);
  CHECK(fs::exists(folder / "out"));
}

TEST_CASE("a model is not copied into its own folder, under any name of that") {
  TempFolder const folder;
  import_checkpoint(golden("llama-tied"), folder / "in");
  fs::create_directory_symlink("in", folder / "link");
  fs::create_directory(folder / "inside");
  for (const char* source : {"in", "link", "in/", "inside/../in"}) {
    for (const char* out : {"in/out", "link/out", "in/a/b", "inside/../in/out"}) {
      INFO(source << " to " << out);
      CHECK(
          names(problems_of([&] { export_checkpoint(folder / source, folder / out, DType::f32); }),
                "lies inside"));
      CHECK(names(problems_of([&] { import_checkpoint(folder / source, folder / out); }),
                  "lies inside"));
    }
  }
  CHECK_FALSE(fs::exists(folder / "in/a"));
  // A name that only begins like the source's is another folder.
  export_checkpoint(folder / "in", folder / "inside/out", DType::f32);
  export_checkpoint(folder / "in", folder / "in-hf", DType::f32);
  CHECK(checkpoint_problems(folder / "in").empty());
}
