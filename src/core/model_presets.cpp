// Published models by name: sizes as in their authors' configurations.
#include <fmt/format.h>

#include <array>

#include "copus/core/config_io.h"
#include "copus/core/error.h"

namespace copus {
namespace {

struct Preset {
  std::string_view name;
  Family family;
  std::int64_t layers, hidden, heads, kv_heads, ffn, vocab, max_positions;
  bool tie;
  double rope_theta, norm_eps;
  double rope_factor;  // Llama 3's scaling from 8192 positions; 0: none
};

constexpr Family kLlama = Family::llama, kQwen = Family::qwen2, kGpt2 = Family::gpt2;
constexpr double kNoRope = 10000.0;  // GPT-2 learns its positions: the struct's default, unread

constexpr std::array kPresets{
    Preset{"gpt2-124m", kGpt2, 12, 768, 12, 12, 3072, 50257, 1024, true, kNoRope, 1e-5, 0},
    Preset{"gpt2-355m", kGpt2, 24, 1024, 16, 16, 4096, 50257, 1024, true, kNoRope, 1e-5, 0},
    Preset{"gpt2-774m", kGpt2, 36, 1280, 20, 20, 5120, 50257, 1024, true, kNoRope, 1e-5, 0},
    Preset{"gpt2-1.5b", kGpt2, 48, 1600, 25, 25, 6400, 50257, 1024, true, kNoRope, 1e-5, 0},
    Preset{"llama-3.2-1b", kLlama, 16, 2048, 32, 8, 8192, 128256, 131072, true, 5e5, 1e-5, 32},
    Preset{"llama-3.2-3b", kLlama, 28, 3072, 24, 8, 8192, 128256, 131072, true, 5e5, 1e-5, 32},
    Preset{"llama-3.1-8b", kLlama, 32, 4096, 32, 8, 14336, 128256, 131072, false, 5e5, 1e-5, 8},
    Preset{"llama-2-7b", kLlama, 32, 4096, 32, 32, 11008, 32000, 4096, false, 1e4, 1e-5, 0},
    Preset{"llama-2-13b", kLlama, 40, 5120, 40, 40, 13824, 32000, 4096, false, 1e4, 1e-5, 0},
    Preset{"smollm2-135m", kLlama, 30, 576, 9, 3, 1536, 49152, 8192, true, 1e5, 1e-5, 0},
    Preset{"qwen2.5-0.5b", kQwen, 24, 896, 14, 2, 4864, 151936, 32768, true, 1e6, 1e-6, 0},
    Preset{"qwen2.5-1.5b", kQwen, 28, 1536, 12, 2, 8960, 151936, 131072, true, 1e6, 1e-6, 0},
    Preset{"qwen2.5-3b", kQwen, 36, 2048, 16, 2, 11008, 151936, 32768, true, 1e6, 1e-6, 0},
    Preset{"qwen2.5-7b", kQwen, 28, 3584, 28, 4, 18944, 152064, 131072, false, 1e6, 1e-6, 0},
    Preset{"qwen2.5-14b", kQwen, 48, 5120, 40, 8, 13824, 152064, 131072, false, 1e6, 1e-5, 0},
    Preset{"qwen2.5-32b", kQwen, 64, 5120, 40, 8, 27648, 152064, 131072, false, 1e6, 1e-5, 0},
};

}  // namespace

std::vector<std::string> model_preset_names() {
  std::vector<std::string> names;
  for (const Preset& preset : kPresets) names.emplace_back(preset.name);
  return names;
}

ModelConfig model_preset(const std::string& name) {
  for (const Preset& p : kPresets) {
    if (p.name != name) continue;
    ModelConfig model;
    model.family = p.family;
    model.layers = p.layers;
    model.hidden = p.hidden;
    model.heads = p.heads;
    model.kv_heads = p.kv_heads;
    model.ffn = p.ffn;
    model.vocab = p.vocab;
    model.seq_len = model.max_positions = p.max_positions;
    model.tie_embeddings = p.tie;
    model.rope_theta = p.rope_theta;
    model.norm_eps = p.norm_eps;
    if (p.rope_factor > 0) model.rope_scaling = RopeScaling{p.rope_factor, 1.0, 4.0, 8192};
    return model;
  }
  std::vector<std::string> const names = model_preset_names();
  std::string const near = nearest_name(name, names);
  throw ConfigError(fmt::format("model preset \"{}\" is unknown; {}known: {}", name,
                                near.empty() ? "" : "did you mean " + near + "? ",
                                fmt::join(names, ", ")));
}

}  // namespace copus
