#include "copus/parallel/activations.h"

#include <algorithm>

#include "copus/parallel/params.h"

namespace copus {
namespace {

struct Sizes {
  std::int64_t b, t, n, r, c, h, k, d, f, v;
};

// Rows of the residual stream that a rank holds.
std::int64_t rows_of(const ModelConfig& m, const Layout& l, std::int64_t micro) {
  std::int64_t const n = micro * m.seq_len;
  return l.sequence_parallel ? n / l.tp : n;
}

Sizes sizes_of(const ModelConfig& m, const Layout& l, std::int64_t micro) {
  std::int64_t const kv_local = std::max<std::int64_t>(1, m.kv_heads / l.tp);
  return {
      micro,    m.seq_len,    micro * m.seq_len, rows_of(m, l, micro),     m.hidden, m.heads / l.tp,
      kv_local, m.head_dim(), m.ffn / l.tp,      padded_vocab(m, l) / l.tp};
}

TensorSpec spec(const char* name, DType dtype, std::initializer_list<std::int64_t> sizes) {
  TensorSpec s{name, dtype, static_cast<int>(sizes.size()), {}};
  std::copy(sizes.begin(), sizes.end(), s.size.begin());
  return s;
}

}  // namespace

DType compute_type(Precision precision) {
  return precision == Precision::bf16 ? DType::bf16 : DType::f32;
}

std::int64_t TensorSpec::numel() const {
  std::int64_t n = 1;
  for (int i = 0; i < dims; ++i) n *= size[static_cast<std::size_t>(i)];
  return n;
}

std::int64_t TensorSpec::bytes() const {
  return (numel() * size_of(dtype) + 63) / 64 * 64;
}

std::vector<TensorSpec> saved_tensors(const ModelConfig& model, const Layout& layout,
                                      std::int64_t micro, Precision precision) {
  Sizes const s = sizes_of(model, layout, micro);
  DType const compute = compute_type(precision);
  std::int64_t const mean = model.is_gpt2() ? s.r : 0, in = model.is_gpt2() ? s.f : 2 * s.f;
  return {spec("x_in", compute, {s.r, s.c}),
          spec("norm1", compute, {s.n, s.c}),
          spec("mean1", DType::f32, {mean}),
          spec("rstd1", DType::f32, {s.r}),
          spec("qkv", compute, {s.b, s.t, s.h + 2 * s.k, s.d}),
          spec("att", compute, {s.b, s.t, s.h, s.d}),
          spec("lse", DType::f32, {s.b, s.h, s.t}),
          spec("x_mid", compute, {s.r, s.c}),
          spec("norm2", compute, {s.n, s.c}),
          spec("mean2", DType::f32, {mean}),
          spec("rstd2", DType::f32, {s.r}),
          spec("gate_up", compute, {s.n, in}),
          spec("ffn", compute, {s.n, s.f})};
}

AttentionTask attention_task(const ModelConfig& model, Precision precision) {
  return {compute_type(precision), model.head_dim(), model.dropout > 0.0};
}

std::int64_t attention_workspace_bytes(const ModelConfig& model, const Layout& layout,
                                       std::int64_t micro, Precision precision,
                                       AttentionLibrary library) {
  if (library != AttentionLibrary::cudnn) return 0;
  if (!cudnn_refusal(attention_task(model, precision)).empty()) return 0;
  Sizes const s = sizes_of(model, layout, micro);
  return fused_attention_bytes({s.b, s.h, s.k, s.t, s.d});
}

std::vector<TensorSpec> scratch_tensors(const ModelConfig& model, const Layout& layout,
                                        std::int64_t micro, Precision precision,
                                        AttentionLibrary library) {
  Sizes const s = sizes_of(model, layout, micro);
  DType const compute = compute_type(precision);
  TensorSpec const d_gate_up = spec("d_gate_up", compute, {s.n, model.is_gpt2() ? s.f : 2 * s.f}),
                   d_ffn = spec("d_ffn", compute, {s.n, s.f});
  std::int64_t const more = attention_workspace_bytes(model, layout, micro, precision, library) -
                            d_gate_up.bytes() - d_ffn.bytes();
  return {spec("ids", DType::i32, {s.n}),
          spec("targets", DType::i32, {s.n}),
          spec("rope", DType::f32, {model.is_gpt2() ? 0 : s.t, s.d / 2, 2}),
          spec("branch", compute, {s.n, s.c}),
          spec("d_x", compute, {s.r, s.c}),
          spec("d_qkv", compute, {s.b, s.t, s.h + 2 * s.k, s.d}),
          spec("d_att", compute, {s.b, s.t, s.h, s.d}),
          d_gate_up,
          d_ffn,
          spec("attention", DType::u8, {std::max<std::int64_t>(0, more)})};
}

std::vector<TensorSpec> message_tensors(const ModelConfig& model, const Layout& layout,
                                        std::int64_t micro, Precision precision, int pp_rank) {
  Sizes const s = sizes_of(model, layout, micro);
  DType const compute = compute_type(precision);
  bool const has_next = layout.pp > 1 && (layout.virtual_stages > 1 || pp_rank + 1 < layout.pp);
  bool const has_before = layout.pp > 1 && (layout.virtual_stages > 1 || pp_rank > 0);
  return {spec("output", compute, {has_next ? s.r : 0, s.c}),
          spec("input", compute, {has_before ? s.r : 0, s.c}),
          spec("output_gradient", compute, {has_next ? s.r : 0, s.c})};
}

std::int64_t head_rows(const ModelConfig& model, const Layout& layout, std::int64_t micro) {
  // A piece's products read all of the vocabulary's weights, and read and write all of their
  // gradients: 12 bytes an element beside 6 operations a row. Where a processor streams 20 GB/s and
  // multiplies at 400 GFLOP/s that adds 4 % to pieces of 1,024 rows, and 16 % to those of 256.
  // 64 MiB of logits hold more rows of a small vocabulary. Equal pieces: a thin last one would cost
  // a whole one.
  constexpr std::int64_t kRows = 1024, kElements = std::int64_t{1} << 24;
  Sizes const s = sizes_of(model, layout, micro);
  std::int64_t const limit = std::max(kRows, kElements / s.v);
  std::int64_t const pieces = std::max<std::int64_t>(1, (s.n + limit - 1) / limit);
  std::int64_t const rows = (s.n + pieces - 1) / pieces;
  return std::min(s.n, (rows + 15) / 16 * 16);
}

namespace {

// Rows of logits begin 256 bytes apart or a multiple of that, and so do those of their gradient:
// matrix libraries have their fast kernels for such rows, and a vocabulary may be odd.
std::int64_t logits_pitch(std::int64_t vocab) {
  constexpr std::int64_t kStep = 64;
  return (vocab + kStep - 1) / kStep * kStep;
}

}  // namespace

std::vector<TensorSpec> head_tensors(const ModelConfig& model, const Layout& layout,
                                     std::int64_t micro, Precision precision) {
  Sizes const s = sizes_of(model, layout, micro);
  DType const compute = compute_type(precision);
  return {spec("final_norm", compute, {s.n, s.c}),
          spec("final_mean", DType::f32, {model.is_gpt2() ? s.r : 0}),
          spec("final_rstd", DType::f32, {s.r}),
          spec("x_final", compute, {s.r, s.c}),
          spec("d_final", compute, {s.n, s.c}),
          spec("logits", DType::f32, {head_rows(model, layout, micro), logits_pitch(s.v)}),
          spec("row_max", DType::f32, {s.n}),
          spec("row_sum", DType::f32, {s.n}),
          spec("target_logit", DType::f32, {s.n}),
          spec("losses", DType::f32, {s.n})};
}

}  // namespace copus
