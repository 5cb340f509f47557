#include "copus/parallel/params.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace copus {
namespace {

constexpr float kInitStd = 0.02f;

// Appends the table's rows; `prefix` and `layer` are those of the block being written.
struct TableWriter {
  std::vector<Param>& table;
  std::string prefix;
  int layer = -1;

  void matrix(Role role, const char* name, std::int64_t rows, std::int64_t cols, Split split,
              float init_std = kInitStd) {
    table.push_back({.role = role,
                     .layer = layer,
                     .name = prefix + name + ".weight",
                     .dims = 2,
                     .size = {rows, cols},
                     .split = split,
                     .decays = true,
                     .init_std = init_std});
  }
  void vector(Role role, const std::string& name, std::int64_t size, Split split, float value) {
    table.push_back({.role = role,
                     .layer = layer,
                     .name = prefix + name,
                     .dims = 1,
                     .size = {1, size},
                     .split = split,
                     .init_value = value});
  }
  void norm(Role gain, Role bias, const char* name, std::int64_t size, bool has_bias) {
    vector(gain, fmt::format("{}.weight", name), size, Split::none, 1.0f);
    if (has_bias) vector(bias, fmt::format("{}.bias", name), size, Split::none, 0.0f);
  }
};

void write_attention(TableWriter& out, const ModelConfig& m, float out_std) {
  std::int64_t const c = m.hidden, kv = m.kv_heads * m.head_dim();
  out.matrix(Role::q, "attn.q", c, c, Split::rows);
  out.matrix(Role::k, "attn.k", kv, c, Split::rows);
  out.matrix(Role::v, "attn.v", kv, c, Split::rows);
  if (m.has_qkv_bias()) {
    // A vector is one row, so the dimension that tp cuts is its columns.
    out.vector(Role::q_bias, "attn.q.bias", c, Split::cols, 0.0f);
    out.vector(Role::k_bias, "attn.k.bias", kv, Split::cols, 0.0f);
    out.vector(Role::v_bias, "attn.v.bias", kv, Split::cols, 0.0f);
  }
  out.matrix(Role::attn_out, "attn.out", c, c, Split::cols, out_std);
  // Added after tp's sum, hence whole on every tp rank.
  if (m.is_gpt2()) out.vector(Role::attn_out_bias, "attn.out.bias", c, Split::none, 0.0f);
}

void write_mlp(TableWriter& out, const ModelConfig& m, float out_std) {
  if (!m.is_gpt2()) out.matrix(Role::gate, "mlp.gate", m.ffn, m.hidden, Split::rows);
  out.matrix(Role::up, "mlp.up", m.ffn, m.hidden, Split::rows);
  if (m.is_gpt2()) out.vector(Role::up_bias, "mlp.up.bias", m.ffn, Split::cols, 0.0f);
  out.matrix(Role::down, "mlp.down", m.hidden, m.ffn, Split::cols, out_std);
  if (m.is_gpt2()) out.vector(Role::down_bias, "mlp.down.bias", m.hidden, Split::none, 0.0f);
}

bool in_matrix_product(Role role) {
  switch (role) {
    case Role::q:
    case Role::k:
    case Role::v:
    case Role::attn_out:
    case Role::gate:
    case Role::up:
    case Role::down:
    case Role::head:
      return true;
    default:
      return false;
  }
}

}  // namespace

std::vector<Param> parameter_table(const ModelConfig& m) {
  std::vector<Param> table;
  bool const biases = m.is_gpt2();
  float const out_std =
      static_cast<float>(kInitStd / std::sqrt(2.0 * static_cast<double>(m.layers)));
  TableWriter model{table, ""};
  model.matrix(Role::embed, "embed", m.vocab, m.hidden, Split::rows);
  if (m.is_gpt2()) {
    model.matrix(Role::positions, "positions", m.max_positions, m.hidden, Split::none);
  }
  for (int layer = 0; layer < m.layers; ++layer) {
    TableWriter block{table, fmt::format("layers.{}.", layer), layer};
    block.norm(Role::norm1, Role::norm1_bias, "norm1", m.hidden, biases);
    write_attention(block, m, out_std);
    block.norm(Role::norm2, Role::norm2_bias, "norm2", m.hidden, biases);
    write_mlp(block, m, out_std);
  }
  model.norm(Role::final_norm, Role::final_norm_bias, "final_norm", m.hidden, biases);
  if (!m.tie_embeddings) model.matrix(Role::head, "head", m.vocab, m.hidden, Split::rows);
  return table;
}

Box intersect(const Box& a, const Box& b) {
  Box box;
  for (std::size_t d = 0; d < 2; ++d) {
    box.begin[d] = std::max(a.begin[d], b.begin[d]);
    std::int64_t const end = std::min(a.begin[d] + a.size[d], b.begin[d] + b.size[d]);
    box.size[d] = std::max<std::int64_t>(end - box.begin[d], 0);
  }
  return box;
}

std::int64_t padded_vocab(const ModelConfig& model, const Layout& layout) {
  return (model.vocab + layout.tp - 1) / layout.tp * layout.tp;
}

std::int64_t parameter_count(const ModelConfig& model) {
  std::int64_t count = 0;
  for (const Param& param : parameter_table(model)) count += param.numel();
  return count;
}

std::int64_t matmul_parameter_count(const ModelConfig& model) {
  std::int64_t count = 0;
  for (const Param& param : parameter_table(model)) {
    // A tied embedding multiplies as the head.
    bool const tied_head = param.role == Role::embed && model.tie_embeddings;
    if (tied_head || in_matrix_product(param.role)) count += param.numel();
  }
  return count;
}

}  // namespace copus
