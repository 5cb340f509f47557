// The boxes of the parameters that a rank's master, m and v hold.
#pragma once
#include <cstdint>
#include <vector>

#include "copus/parallel/layout.h"
#include "copus/parallel/params.h"

namespace copus {

struct StateBox {
  int param = 0;
  Box box;
  std::int64_t offset = 0;      // of its first element in each of the three buffers
  std::int64_t row_stride = 0;  // elements between its rows there
  bool counted = false;         // true on exactly one rank of the world for each element
};

struct StateShard {
  std::vector<StateBox> boxes;  // in the buffers' order
  std::int64_t numel = 0;       // of each buffer, with the padding that no box covers
};

// Without ZeRO (or with one data-parallel rank) the buffers are as FlatLayout's first state_numel
// elements; under ZeRO-1 they are the rank's pieces of the buckets, one behind the other. A rank
// beyond the layout's world holds nothing.
StateShard state_shard(const ModelConfig& model, const Layout& layout, int rank);
// Of every rank of the layout.
std::vector<StateShard> state_shards(const ModelConfig& model, const Layout& layout);

}  // namespace copus
