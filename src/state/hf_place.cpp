#include <fmt/format.h>

#include "copus/core/error.h"
#include "copus/state/hf.h"

namespace copus {
namespace {

HfPlace vector_at(std::string name, std::int64_t size) {
  return {.name = std::move(name), .shape = {size, 1}, .dims = 1};
}

// Llama and Qwen2 keep (out, in), one tensor each: the file's tensor is the logical one.
HfPlace llama_place(const Param& p) {
  const char* name = nullptr;
  switch (p.role) {
    case Role::embed:
      return {.name = "model.embed_tokens.weight", .shape = p.size};
    case Role::final_norm:
      return vector_at("model.norm.weight", p.size[1]);
    case Role::head:
      return {.name = "lm_head.weight", .shape = p.size};
    case Role::norm1:
      name = "input_layernorm.weight";
      break;
    case Role::q:
      name = "self_attn.q_proj.weight";
      break;
    case Role::k:
      name = "self_attn.k_proj.weight";
      break;
    case Role::v:
      name = "self_attn.v_proj.weight";
      break;
    case Role::q_bias:
      name = "self_attn.q_proj.bias";
      break;
    case Role::k_bias:
      name = "self_attn.k_proj.bias";
      break;
    case Role::v_bias:
      name = "self_attn.v_proj.bias";
      break;
    case Role::attn_out:
      name = "self_attn.o_proj.weight";
      break;
    case Role::norm2:
      name = "post_attention_layernorm.weight";
      break;
    case Role::gate:
      name = "mlp.gate_proj.weight";
      break;
    case Role::up:
      name = "mlp.up_proj.weight";
      break;
    case Role::down:
      name = "mlp.down_proj.weight";
      break;
    default:
      COPUS_CHECK(false, p.name + " is a tensor of Llama or Qwen2");
  }
  std::string full = fmt::format("model.layers.{}.{}", p.layer, name);
  if (p.dims == 1) return vector_at(std::move(full), p.size[1]);
  return {.name = std::move(full), .shape = p.size};
}

// GPT-2's Conv1D keeps (in, out), and q, k, v side by side in one tensor.
HfPlace gpt2_place(const ModelConfig& m, const Param& p) {
  std::int64_t const c = m.hidden;
  auto const in_block = [&](const char* name) {
    return fmt::format("transformer.h.{}.{}", p.layer, name);
  };
  auto const linear = [&](const char* name) {
    return HfPlace{.name = in_block(name), .shape = {p.size[1], p.size[0]}, .transposed = true};
  };
  auto const fused = [&](std::int64_t index) {
    return HfPlace{.name = in_block("attn.c_attn.weight"),
                   .shape = {c, 3 * c},
                   .transposed = true,
                   .first_column = index * c};
  };
  auto const fused_bias = [&](std::int64_t index) {
    HfPlace place = vector_at(in_block("attn.c_attn.bias"), 3 * c);
    place.first_column = index * c;
    return place;
  };
  auto const vector = [&](const char* name) { return vector_at(in_block(name), p.size[1]); };
  switch (p.role) {
    case Role::embed:
      return {.name = "transformer.wte.weight", .shape = p.size};
    case Role::positions:
      return {.name = "transformer.wpe.weight", .shape = p.size};
    case Role::norm1:
      return vector("ln_1.weight");
    case Role::norm1_bias:
      return vector("ln_1.bias");
    case Role::q:
      return fused(0);
    case Role::k:
      return fused(1);
    case Role::v:
      return fused(2);
    case Role::q_bias:
      return fused_bias(0);
    case Role::k_bias:
      return fused_bias(1);
    case Role::v_bias:
      return fused_bias(2);
    case Role::attn_out:
      return linear("attn.c_proj.weight");
    case Role::attn_out_bias:
      return vector("attn.c_proj.bias");
    case Role::norm2:
      return vector("ln_2.weight");
    case Role::norm2_bias:
      return vector("ln_2.bias");
    case Role::up:
      return linear("mlp.c_fc.weight");
    case Role::up_bias:
      return vector("mlp.c_fc.bias");
    case Role::down:
      return linear("mlp.c_proj.weight");
    case Role::down_bias:
      return vector("mlp.c_proj.bias");
    case Role::final_norm:
      return vector_at("transformer.ln_f.weight", p.size[1]);
    case Role::final_norm_bias:
      return vector_at("transformer.ln_f.bias", p.size[1]);
    case Role::head:
      return {.name = "lm_head.weight", .shape = p.size};
    case Role::gate:
      break;
  }
  COPUS_CHECK(false, p.name + " is a tensor of GPT-2");
}

}  // namespace

HfPlace hf_place(const ModelConfig& model, const Param& param) {
  return model.is_gpt2() ? gpt2_place(model, param) : llama_place(param);
}

}  // namespace copus
