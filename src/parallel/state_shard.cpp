#include "copus/parallel/state_shard.h"

namespace copus {
namespace {

// Appends what the flat stretch `piece` of `flat` holds, as the next piece of the state buffers.
void append_piece(StateShard& shard, const FlatLayout& flat, const Bucket& piece, bool counted) {
  for (const LocalParam& local : flat.params) {
    for (const BoxPiece& part : boxes_in(local, piece.offset, piece.offset + piece.size)) {
      shard.boxes.push_back({.param = part.param,
                             .box = part.box,
                             .offset = shard.numel + part.offset - piece.offset,
                             .row_stride = part.row_stride,
                             .counted = counted && local.counted});
    }
  }
  shard.numel += piece.size;
}

}  // namespace

StateShard state_shard(const ModelConfig& model, const Layout& layout, int rank) {
  StateShard shard;
  if (rank >= layout.world()) return shard;
  Coord const at = coord_of(layout, rank);
  FlatLayout const flat = flat_layout(model, layout, at.tp, at.pp);
  if (layout.zero == 0) {
    append_piece(shard, flat, {.offset = 0, .size = flat.state_numel}, at.dp == 0);
    return shard;
  }
  for (const Bucket& bucket : flat.buckets) {
    if (!bucket.tied_copy) append_piece(shard, flat, owned_piece(bucket, layout, at.dp), true);
  }
  return shard;
}

std::vector<StateShard> state_shards(const ModelConfig& model, const Layout& layout) {
  std::vector<StateShard> shards;
  for (int rank = 0; rank < layout.world(); ++rank)
    shards.push_back(state_shard(model, layout, rank));
  return shards;
}

}  // namespace copus
