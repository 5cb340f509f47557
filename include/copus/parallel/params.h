// The parameters of a model as a table, and the box of each that a rank holds.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "copus/core/config.h"
#include "copus/parallel/layout.h"

namespace copus {

enum class Role : std::uint8_t {
  embed,      // (V, C), tied to the head when tie_embeddings
  positions,  // (max_positions, C), GPT-2
  norm1,
  norm1_bias,
  q,
  k,
  v,
  q_bias,
  k_bias,
  v_bias,  // (heads * D, C): weights are (out, in)
  attn_out,
  attn_out_bias,  // (C, C)
  norm2,
  norm2_bias,
  gate,
  up,
  up_bias,  // (F, C); GPT-2 has `up` alone
  down,
  down_bias,  // (C, F)
  final_norm,
  final_norm_bias,
  head,  // (V, C), untied only
};

// Which dimension tp cuts. A vector is one row, so a split bias is cut by cols.
enum class Split : std::uint8_t { none, rows, cols };

// One logical tensor of the whole model. Vectors are one row: size {1, n}, dims 1.
struct Param {
  Role role;
  int layer = -1;    // -1: outside the blocks
  std::string name;  // logical name, "layers.3.attn.q.weight"
  int dims = 2;
  std::array<std::int64_t, 2> size{};  // unpadded
  Split split = Split::none;
  bool decays = false;    // weight decay applies (dims >= 2)
  float init_std = 0.0f;  // 0: constant init_value
  float init_value = 0.0f;

  std::int64_t numel() const { return size[0] * size[1]; }
};

// Every logical tensor in model order: embed, positions, layer 0 .. L-1, final norm, head. q, k and
// v (their biases too, and gate and up) are neighbours, so that one matrix product can run over
// them where they are held whole. Initial weights: normal(0, 0.02), output projections 0.02 /
// sqrt(2 L) (Radford et al. 2019), gains 1, biases 0.
std::vector<Param> parameter_table(const ModelConfig& model);

// A rectangle of a logical tensor.
struct Box {
  std::array<std::int64_t, 2> begin{}, size{};
  std::int64_t numel() const { return size[0] * size[1]; }
  bool empty() const { return size[0] <= 0 || size[1] <= 0; }
  bool operator==(const Box&) const = default;
};
Box intersect(const Box& a, const Box& b);

// What one (tp, pp) rank holds of one parameter, as a row-major local block at `offset` of its flat
// buffers.
struct LocalParam {
  int param = 0;                             // index into parameter_table
  Box box;                                   // the part of the logical tensor held here
  std::array<std::int64_t, 2> local_size{};  // >= box.size: padding rows (vocabulary) or columns
                                             // come last, hold 0, never move
  std::int64_t offset = 0;                   // elements from the start of the flat buffer
  int bucket = 0;
  bool counted = true;  // false: a replica that norms, hashes and checkpoints must not count again
                        // (tp, kv heads, tied)
  int replicas = 1;     // tp ranks that hold this same box: their gradients are summed, or equal

  std::int64_t numel() const { return local_size[0] * local_size[1]; }
};

// A stretch of the flat gradient that is reduced in one piece.
struct Bucket {
  std::int64_t offset = 0;
  std::int64_t size = 0;   // elements, a multiple of dp (padding at the end belongs to no tensor)
  bool tied_copy = false;  // the last stage's compute copy of a tied embedding: no optimizer state,
                           // and its gradient goes to the first stage instead of a dp reduction
};

// The flat buffers (weights, gradients; master, m and v without ZeRO) of one (tp, pp) rank: a pure
// function of model and layout.
struct FlatLayout {
  std::vector<LocalParam> params;
  std::vector<Bucket> buckets;
  std::int64_t numel = 0;        // with padding
  std::int64_t state_numel = 0;  // what has master, m and v: all but a tied copy, which comes last

  const LocalParam* find(const std::vector<Param>& table, Role role, int layer) const;
};
FlatLayout flat_layout(const ModelConfig& model, const Layout& layout, int tp_rank, int pp_rank);

// Whether a rank's gradient of this parameter is only its part of a sum over tp: norms under
// sequence parallelism saw this rank's rows alone, replicas of kv heads serve their own query
// heads.
bool is_partial_over_tp(const Layout& layout, const Param& param, const LocalParam& local);

// The layer whose bucket a parameter is in: its own; -1 for the embeddings, whose gradients are
// complete last; model.layers for the final norm and the head, whose gradients come first.
std::int64_t bucket_layer(const ModelConfig& model, const Param& param);

// The stretch [offset, offset + size) of bucket `b` that data-parallel rank `dp_rank` owns under
// ZeRO-1.
Bucket owned_piece(const Bucket& bucket, const Layout& layout, int dp_rank);

// The at most three boxes of `local` (in logical coordinates, padding left out) that a flat stretch
// touches, each with the flat offset of its first element; `local_row_stride` is the local block's
// row length.
struct BoxPiece {
  int param = 0;
  Box box;
  std::int64_t offset = 0;
  std::int64_t row_stride = 0;
};
std::vector<BoxPiece> boxes_in(const LocalParam& local, std::int64_t begin, std::int64_t end);

// Rows of the vocabulary as tp holds it in memory: a multiple of tp.
std::int64_t padded_vocab(const ModelConfig& model, const Layout& layout);
// Parameters of the whole model, tied tensors once.
std::int64_t parameter_count(const ModelConfig& model);
// Weights that take part in matrix products (no embedding lookup, no norms, no biases): N_matmul of
// the MFU formula.
std::int64_t matmul_parameter_count(const ModelConfig& model);

}  // namespace copus
