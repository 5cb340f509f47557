#include <fmt/format.h>

#include <algorithm>

#include "copus/core/error.h"
#include "copus/parallel/params.h"

namespace copus {
namespace {

// What tp rank `r` of `layout` holds of a tensor: box, local size, counted, replicas.
LocalParam shard_of(const ModelConfig& model, const Layout& layout, const Param& param, int r) {
  LocalParam local;
  local.box.size = local.local_size = param.size;
  if (param.split == Split::none) {
    local.counted = r == 0;
    local.replicas = layout.tp;
    return local;
  }
  std::size_t const dim = param.split == Split::rows ? 0 : 1;
  std::int64_t const tp = layout.tp, size = param.size[dim];
  std::int64_t part = 0, index = r;  // length of a shard; which shard this rank holds
  switch (param.role) {
    case Role::embed:
    case Role::head:
      part = padded_vocab(model, layout) / tp;
      break;
    case Role::k:
    case Role::v:
    case Role::k_bias:
    case Role::v_bias: {
      // With more ranks than kv heads, neighbours share a head: their query heads are its group.
      std::int64_t const shards = std::min(tp, model.kv_heads);
      local.replicas = static_cast<int>(tp / shards);
      local.counted = r % local.replicas == 0;
      index = r / local.replicas;
      part = size / shards;
      COPUS_CHECK(shards * local.replicas == tp && shards * part == size, "an illegal tp");
      break;
    }
    default:
      part = size / tp;
      COPUS_CHECK(part * tp == size, fmt::format("tp does not divide {}", param.name));
  }
  local.local_size[dim] = part;
  // Rows beyond the vocabulary are padding; a rank may hold nothing else.
  local.box.begin[dim] = std::min(index * part, size);
  local.box.size[dim] = std::min(part, size - local.box.begin[dim]);
  return local;
}

bool held_by(const ModelConfig& model, const Layout& layout, const Param& param, int pp_rank) {
  if (param.layer < 0) {
    bool const first = param.role == Role::embed || param.role == Role::positions;
    return pp_rank == (first ? 0 : layout.pp - 1);
  }
  for (int chunk = 0; chunk < layout.virtual_stages; ++chunk) {
    LayerRange const range = layers_of(model.layers, layout, pp_rank, chunk);
    if (param.layer >= range.begin && param.layer < range.end) return true;
  }
  return false;
}

// Tensors of one bucket have one of these: embedding and positions, each layer, final norm and
// head.
bool is_norm(Role role) {
  return role == Role::norm1 || role == Role::norm1_bias || role == Role::norm2 ||
         role == Role::norm2_bias || role == Role::final_norm || role == Role::final_norm_bias;
}

bool is_kv(Role role) {
  return role == Role::k || role == Role::v || role == Role::k_bias || role == Role::v_bias;
}

struct FlatWriter {
  FlatLayout flat;
  std::int64_t dp;

  void open_bucket() { flat.buckets.push_back({.offset = flat.numel}); }
  void append(LocalParam local, int param) {
    local.param = param;
    local.offset = flat.numel;
    local.bucket = static_cast<int>(flat.buckets.size()) - 1;
    flat.numel += local.numel();
    flat.params.push_back(local);
  }
  void close_bucket() {
    if (flat.buckets.empty()) return;
    Bucket& bucket = flat.buckets.back();
    bucket.size = (flat.numel - bucket.offset + dp - 1) / dp * dp;
    flat.numel = bucket.offset + bucket.size;
  }
};

}  // namespace

bool is_partial_over_tp(const Layout& layout, const Param& param, const LocalParam& local) {
  return (is_norm(param.role) && layout.sequence_parallel) ||
         (is_kv(param.role) && local.replicas > 1);
}

std::int64_t bucket_layer(const ModelConfig& model, const Param& param) {
  if (param.layer >= 0) return param.layer;
  return param.role == Role::embed || param.role == Role::positions ? -1 : model.layers;
}

const LocalParam* FlatLayout::find(const std::vector<Param>& table, Role role, int layer) const {
  for (const LocalParam& local : params) {
    const Param& param = table[static_cast<std::size_t>(local.param)];
    if (param.role == role && param.layer == layer) return &local;
  }
  return nullptr;
}

FlatLayout flat_layout(const ModelConfig& model, const Layout& layout, int tp_rank, int pp_rank) {
  std::vector<Param> const table = parameter_table(model);
  FlatWriter out{{}, layout.dp};
  std::int64_t open_key = -2;  // no bucket's key
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (!held_by(model, layout, table[i], pp_rank)) continue;
    if (std::int64_t const key = bucket_layer(model, table[i]); key != open_key) {
      out.close_bucket();
      out.open_bucket();
      open_key = key;
    }
    out.append(shard_of(model, layout, table[i], tp_rank), static_cast<int>(i));
  }
  out.close_bucket();
  out.flat.state_numel = out.flat.numel;
  if (model.tie_embeddings && layout.pp > 1 && pp_rank == layout.pp - 1) {
    // The last stage's compute copy of the embedding, in a bucket of its own behind all that has
    // optimizer state.
    COPUS_CHECK(table[0].role == Role::embed, "the table starts with the embedding");
    LocalParam copy = shard_of(model, layout, table[0], tp_rank);
    copy.counted = false;
    out.open_bucket();
    out.flat.buckets.back().tied_copy = true;
    out.append(copy, 0);
    out.close_bucket();
  }
  return out.flat;
}

Bucket owned_piece(const Bucket& bucket, const Layout& layout, int dp_rank) {
  std::int64_t const size = bucket.size / layout.dp;
  return {.offset = bucket.offset + dp_rank * size, .size = size, .tied_copy = bucket.tied_copy};
}

std::vector<BoxPiece> boxes_in(const LocalParam& local, std::int64_t begin, std::int64_t end) {
  std::int64_t const width = local.local_size[1];
  std::int64_t const from = std::max(begin - local.offset, std::int64_t{0});
  std::int64_t const to = std::min(end - local.offset, local.numel());
  std::vector<BoxPiece> pieces;
  // Local rows [row, row_end), columns [col, col_end), less the padding.
  auto const add = [&](std::int64_t row, std::int64_t row_end, std::int64_t col,
                       std::int64_t col_end) {
    row_end = std::min(row_end, local.box.size[0]);
    col_end = std::min(col_end, local.box.size[1]);
    if (row >= row_end || col >= col_end) return;
    pieces.push_back({.param = local.param,
                      .box = {{local.box.begin[0] + row, local.box.begin[1] + col},
                              {row_end - row, col_end - col}},
                      .offset = local.offset + row * width + col,
                      .row_stride = width});
  };
  if (from >= to) return pieces;
  std::int64_t const row = from / width, col = from % width;
  std::int64_t const last_row = to / width, last_col = to % width;  // end, exclusive
  if (row == last_row) {
    add(row, row + 1, col, last_col);
    return pieces;
  }
  std::int64_t const whole = col == 0 ? row : row + 1;  // first whole row
  if (col != 0) add(row, row + 1, col, width);
  add(whole, last_row, 0, width);
  if (last_col != 0) add(last_row, last_row + 1, 0, last_col);
  return pieces;
}

}  // namespace copus
