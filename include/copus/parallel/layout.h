// A 3D parallel layout, and where a rank stands in it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "copus/core/config.h"

namespace copus {

struct Layout {
  int dp = 1, tp = 1, pp = 1;
  int virtual_stages = 1;  // chunks of layers a pipeline rank holds (interleaved 1F1B when > 1)
  int zero = 0;            // ZeRO stage: 0 or 1
  bool sequence_parallel = false;

  int world() const { return dp * tp * pp; }
  bool operator==(const Layout&) const = default;
};

// rank = (pp * DP + dp) * TP + tp: tp fastest, so that it stays inside a node.
struct Coord {
  int dp = 0, tp = 0, pp = 0;
  bool operator==(const Coord&) const = default;
};
int rank_of(const Layout& layout, const Coord& coord);
Coord coord_of(const Layout& layout, int rank);  // rank < layout.world()

// Layers [begin, end) of the model that chunk `chunk` (< virtual_stages) of pipeline rank `pp`
// runs. With an uneven split (virtual_stages 1 only) the stages in the middle get one layer more
// than the first and last, which hold embedding and head.
struct LayerRange {
  std::int64_t begin = 0, end = 0;
  bool operator==(const LayerRange&) const = default;
};
LayerRange layers_of(std::int64_t layers, const Layout& layout, int pp, int chunk);

// Everything that makes a layout illegal for a model, batch and micro-batch: one sentence each,
// with the nearest valid values. Empty: legal. batch or micro 0: not checked.
std::vector<std::string> illegal_reasons(const ModelConfig& model, const Layout& layout,
                                         std::int64_t batch, std::int64_t micro);

std::string to_string(const Layout& layout);  // "dp 2 x tp 2 x pp 1, zero 1"

}  // namespace copus
