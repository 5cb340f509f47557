#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "copus/core/config_io.h"
#include "copus/core/error.h"
#include "copus/state/checkpoint.h"
#include "copus/state/hf.h"
#include "state/files.h"

namespace copus {
namespace {

using nlohmann::json;

constexpr std::int64_t kMaxConfigBytes = std::int64_t{16} << 20;
constexpr std::int64_t kMaxSize = std::int64_t{1}
                                  << 31;  // of one dimension: products stay in 63 bits
constexpr std::int64_t kMaxLayers = 65536;

// One config.json being read: values by key, and every problem found.
class Reader {
 public:
  Reader(const json& root, std::string path, std::vector<std::string>& problems)
      : root_(root), path_(std::move(path)), problems_(problems) {}

  bool has(const char* key) const { return root_.contains(key) && !root_.at(key).is_null(); }

  void refuse(std::string_view key, const std::string& value, std::string_view accepted) {
    problems_.push_back(
        fmt::format("{}: {} is {}; accepted: {}", path_, key, shortened(value), accepted));
  }
  void refuse(const char* key, std::string_view accepted) {
    refuse(key, root_.at(key).dump(), accepted);
  }

  // A dimension; `fallback` 0 means that it must be there (a size left to a default is a trap).
  std::int64_t size(const char* key, std::int64_t fallback = 0, std::int64_t most = kMaxSize) {
    if (!has(key)) {
      if (fallback == 0) refuse(key, "missing", "a whole number from 1 up");
      return fallback;
    }
    const json& value = root_.at(key);
    bool const fits = value.is_number_integer() &&
                      (!value.is_number_unsigned() ||
                       value.get<std::uint64_t>() <= static_cast<std::uint64_t>(most));
    if (fits && value.get<std::int64_t>() >= 1) return value.get<std::int64_t>();
    refuse(key, fmt::format("a whole number from 1 to {}", most));
    return 0;
  }

  double positive(const char* key, double fallback) {
    if (!has(key)) return fallback;
    const json& value = root_.at(key);
    if (value.is_number() && std::isfinite(value.get<double>()) && value.get<double>() > 0) {
      return value.get<double>();
    }
    refuse(key, "a number above 0");
    return fallback;
  }

  bool flag(const char* key, bool fallback) {
    if (!has(key)) return fallback;
    if (root_.at(key).is_boolean()) return root_.at(key).get<bool>();
    refuse(key, "true or false");
    return fallback;
  }

  // Keys that change the mathematics in ways we do not have: only the plain value passes.
  void must_be(const char* key, bool value) {
    if (flag(key, value) != value) refuse(key, value ? "true" : "false");
  }
  void must_be_absent(const char* key) {
    if (has(key)) refuse(key, "null, or no such key");
  }
  void one_of(const char* key, const std::vector<std::string>& words) {
    if (!has(key)) return;
    const json& value = root_.at(key);
    for (const std::string& word : words) {
      if (value == word) return;
    }
    refuse(key, fmt::format("\"{}\"", fmt::join(words, "\", \"")));
  }

  const json& root() const { return root_; }
  const std::string& path() const { return path_; }
  std::vector<std::string>& problems() { return problems_; }

 private:
  static std::string shortened(const std::string& text) {
    return text.size() <= 200 ? text : text.substr(0, 200) + "...";
  }

  const json& root_;
  std::string path_;
  std::vector<std::string>& problems_;
};

// What one of Hugging Face's two spellings (rope_scaling; since 2025 rope_parameters) says.
struct Rope {
  std::optional<RopeScaling> scaling;
  std::optional<double> theta;
};

Rope read_rope(Reader& in, const char* key) {
  Rope rope;
  if (!in.has(key)) return rope;
  if (!in.root().at(key).is_object()) {
    in.refuse(key, "null or an object");
    return rope;
  }
  Reader fields(in.root().at(key), fmt::format("{}: {}", in.path(), key), in.problems());
  if (fields.has("rope_theta")) rope.theta = fields.positive("rope_theta", 0);
  if (double const part = fields.positive("partial_rotary_factor", 1.0); part != 1.0) {
    fields.refuse("partial_rotary_factor", "1.0");
  }
  const char* const type_key = fields.has("rope_type") ? "rope_type" : "type";  // the older name
  if (!fields.has(type_key) || fields.root().at(type_key) == "default") return rope;
  if (fields.root().at(type_key) == "linear") {
    if (!fields.has("factor")) fields.refuse("factor", "missing", "a number above 0");
    rope.scaling.emplace().kind = RopeKind::linear;
    rope.scaling->factor = fields.positive("factor", 1.0);
    return rope;
  }
  if (fields.root().at(type_key) != "llama3") {
    fields.refuse(type_key, "\"default\", \"linear\", \"llama3\"");
    return rope;
  }
  for (const char* need : {"factor", "low_freq_factor", "high_freq_factor"}) {
    if (!fields.has(need)) fields.refuse(need, "missing", "a number above 0");
  }
  RopeScaling scaling;
  scaling.factor = fields.positive("factor", scaling.factor);
  scaling.low_freq_factor = fields.positive("low_freq_factor", scaling.low_freq_factor);
  scaling.high_freq_factor = fields.positive("high_freq_factor", scaling.high_freq_factor);
  scaling.original_max_positions = fields.size("original_max_position_embeddings");
  if (scaling.high_freq_factor <= scaling.low_freq_factor) {
    fields.refuse("high_freq_factor", fmt::format("{}", scaling.high_freq_factor),
                  fmt::format("more than low_freq_factor, {}", scaling.low_freq_factor));
  }
  rope.scaling = scaling;
  return rope;
}

void read_ropes(Reader& in, ModelConfig& m) {
  Rope const old_rope = read_rope(in, "rope_scaling");
  Rope const new_rope = read_rope(in, "rope_parameters");
  bool const both = in.has("rope_scaling") && in.has("rope_parameters");
  if (both && old_rope.scaling != new_rope.scaling) {
    in.refuse("rope_parameters", "the same as rope_scaling, or one of the two");
  }
  m.rope_scaling = old_rope.scaling ? old_rope.scaling : new_rope.scaling;
  m.rope_theta = in.positive("rope_theta", m.rope_theta);
  for (const Rope* rope : {&old_rope, &new_rope}) {
    if (!rope->theta) continue;
    if (in.has("rope_theta") && m.rope_theta != *rope->theta) {
      in.refuse("rope_theta", fmt::format("{}, as beside the rope type", *rope->theta));
    }
    m.rope_theta = *rope->theta;
  }
}

// Sizes that do not divide, under the file's names for them.
void check_heads(Reader& in, const ModelConfig& m, const char* heads, const char* kv_heads,
                 const char* hidden) {
  if (m.heads < 1 || m.kv_heads < 1 || m.hidden < 1) return;
  if (m.hidden % m.heads != 0) {
    in.refuse(heads, fmt::format("{}", m.heads),
              fmt::format("a divisor of {} ({})", hidden, m.hidden));
    return;
  }
  if (m.heads % m.kv_heads != 0) {
    in.refuse(kv_heads, fmt::format("{}", m.kv_heads),
              fmt::format("a divisor of {} ({})", heads, m.heads));
  }
  if (!m.is_gpt2() && m.head_dim() % 2 != 0) {
    in.refuse(heads, fmt::format("{}", m.heads),
              fmt::format("one that makes heads of even width ({} / {} is {})", hidden, heads,
                          m.head_dim()));
  }
}

ModelConfig read_gpt2(Reader& in) {
  ModelConfig m;
  m.family = Family::gpt2;
  m.layers = in.size("n_layer", 0, kMaxLayers);
  m.hidden = in.size("n_embd");
  m.heads = m.kv_heads = in.size("n_head");
  m.ffn = in.has("n_inner") ? in.size("n_inner") : 4 * m.hidden;
  m.vocab = in.size("vocab_size");
  m.max_positions = in.size("n_positions");
  m.norm_eps = in.positive("layer_norm_epsilon", 1e-5);
  m.tie_embeddings = in.flag("tie_word_embeddings", true);
  // Two names of the same tanh formula.
  in.one_of("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
  in.must_be("scale_attn_weights", true);
  in.must_be("scale_attn_by_inverse_layer_idx", false);
  in.must_be("add_cross_attention", false);
  check_heads(in, m, "n_head", "n_head", "n_embd");
  return m;
}

ModelConfig read_llama_like(Reader& in, Family family) {
  ModelConfig m;
  m.family = family;
  m.layers = in.size("num_hidden_layers", 0, kMaxLayers);
  m.hidden = in.size("hidden_size");
  m.heads = in.size("num_attention_heads");
  m.kv_heads = in.has("num_key_value_heads") ? in.size("num_key_value_heads") : m.heads;
  m.ffn = in.size("intermediate_size");
  m.vocab = in.size("vocab_size");
  m.max_positions = in.size("max_position_embeddings");
  m.norm_eps = in.positive("rms_norm_eps", 1e-6);
  m.tie_embeddings = in.flag("tie_word_embeddings", false);
  read_ropes(in, m);
  in.one_of("hidden_act", {"silu"});
  in.must_be("mlp_bias", false);
  if (family == Family::llama) in.must_be("attention_bias", false);
  in.must_be("use_sliding_window", false);
  in.must_be("use_mrope", false);
  // Qwen2 writes a window that it does not use; Llama has no switch beside it.
  if (family == Family::llama) in.must_be_absent("sliding_window");
  if (in.has("layer_types")) {
    for (const json& type : in.root().at("layer_types")) {
      if (type == "full_attention") continue;
      in.refuse("layer_types", "\"full_attention\" for every layer");
      break;
    }
  }
  if (double const part = in.positive("partial_rotary_factor", 1.0); part != 1.0) {
    in.refuse("partial_rotary_factor", "1.0");
  }
  check_heads(in, m, "num_attention_heads", "num_key_value_heads", "hidden_size");
  bool const divides = m.heads > 0 && m.hidden % m.heads == 0;
  if (in.has("head_dim") && divides && in.size("head_dim") != m.head_dim()) {
    in.refuse("head_dim", fmt::format("hidden_size / num_attention_heads, {}", m.head_dim()));
  }
  return m;
}

json rope_json(const RopeScaling& scaling) {
  if (scaling.kind == RopeKind::linear) {
    return {{"rope_type", "linear"}, {"factor", scaling.factor}};
  }
  return {{"rope_type", "llama3"},
          {"factor", scaling.factor},
          {"low_freq_factor", scaling.low_freq_factor},
          {"high_freq_factor", scaling.high_freq_factor},
          {"original_max_position_embeddings", scaling.original_max_positions}};
}

json gpt2_json(const ModelConfig& m) {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"n_layer", m.layers},
          {"n_embd", m.hidden},
          {"n_head", m.heads},
          {"n_inner", m.ffn},
          {"n_positions", m.max_positions},
          {"n_ctx", m.max_positions},
          {"layer_norm_epsilon", m.norm_eps},
          {"activation_function", "gelu_new"},
          {"scale_attn_weights", true},
          {"scale_attn_by_inverse_layer_idx", false},
          {"reorder_and_upcast_attn", false},
          {"add_cross_attention", false},
          {"resid_pdrop", m.dropout},
          {"embd_pdrop", m.dropout},
          {"attn_pdrop", m.dropout}};
}

json llama_like_json(const ModelConfig& m) {
  json out = {{"num_hidden_layers", m.layers},
              {"hidden_size", m.hidden},
              {"num_attention_heads", m.heads},
              {"num_key_value_heads", m.kv_heads},
              {"intermediate_size", m.ffn},
              {"max_position_embeddings", m.max_positions},
              {"rms_norm_eps", m.norm_eps},
              {"rope_theta", m.rope_theta},
              {"rope_scaling", m.rope_scaling ? rope_json(*m.rope_scaling) : json(nullptr)},
              {"hidden_act", "silu"},
              {"attention_dropout", 0.0}};
  if (m.family == Family::llama) {
    out["architectures"] = {"LlamaForCausalLM"};
    out["model_type"] = "llama";
    out["head_dim"] = m.head_dim();
    out["attention_bias"] = false;
    out["mlp_bias"] = false;
    out["pretraining_tp"] = 1;
  } else {
    out["architectures"] = {"Qwen2ForCausalLM"};
    out["model_type"] = "qwen2";
    out["use_sliding_window"] = false;
    out["sliding_window"] = nullptr;
    out["max_window_layers"] = m.layers;
  }
  return out;
}

}  // namespace

ModelConfig read_hf_config(const std::string& directory) {
  std::string const path = directory + "/config.json";
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    throw ConfigError(fmt::format(
        "{}: missing; a checkpoint or Hugging Face model is a directory with a config.json", path));
  }
  json const root = json::parse(read_json_file(path, kMaxConfigBytes), nullptr, false);
  if (!root.is_object()) throw ConfigError(fmt::format("{}: not a JSON object", path));

  std::vector<std::string> problems;
  Reader in(root, path, problems);
  in.must_be_absent("quantization_config");
  ModelConfig model;
  json const type = root.value("model_type", json());
  if (type == "gpt2") {
    model = read_gpt2(in);
  } else if (type == "llama" || type == "qwen2") {
    model = read_llama_like(in, type == "llama" ? Family::llama : Family::qwen2);
  } else {
    in.refuse("model_type", type.is_null() ? "missing" : type.dump(),
              "\"llama\", \"qwen2\", \"gpt2\"");
  }
  if (!problems.empty()) throw ConfigError(std::move(problems));
  model.seq_len = model.max_positions;
  return model;
}

json to_hf_config(const ModelConfig& model) {
  COPUS_CHECK(model.layers > 0 && model.heads > 0 && model.max_positions > 0,
              "a written config has its sizes");
  json out = model.is_gpt2() ? gpt2_json(model) : llama_like_json(model);
  out["vocab_size"] = model.vocab;
  out["tie_word_embeddings"] = model.tie_embeddings;
  out["torch_dtype"] = "float32";
  out["initializer_range"] = 0.02;
  out["use_cache"] = true;
  // Hugging Face's defaults would name ids of its own vocabularies; whoever knows the tokenizer
  // fills them in.
  out["bos_token_id"] = nullptr;
  out["eos_token_id"] = nullptr;
  return out;
}

void resolve_model(Config& config) {
  if (config.model.from.empty()) return;
  check_small_files(config.model.from);
  ModelConfig model = read_hf_config(config.model.from);
  if (config.model.seq_len > 0) model.seq_len = config.model.seq_len;
  model.dropout = config.model.dropout;
  model.from = config.model.from;
  config.model = std::move(model);
  std::vector<std::string> problems = check_sizes(config);
  if (!problems.empty()) throw ConfigError(std::move(problems));
}

}  // namespace copus
