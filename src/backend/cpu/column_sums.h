// Sums over rows, one a column, in an order that the number of threads does not change: rows are
// cut into blocks of fixed size, each block summed apart, the blocks added in their order.
#pragma once
#include <algorithm>
#include <cstdint>

#include "backend/cpu/parallel_for.h"

namespace copus {

struct ColumnSums {
  static constexpr std::int64_t kRowsPerBlock = 32;

  std::int64_t rows, width, blocks;
  int kinds;                  // how many sums run side by side, e.g. those of gain and bias
  float* partials = nullptr;  // (blocks, kinds, width), set by the owner of the scratch memory

  ColumnSums(std::int64_t rows_in, std::int64_t width_in, int kinds_in)
      : rows(rows_in),
        width(width_in),
        blocks((rows_in + kRowsPerBlock - 1) / kRowsPerBlock),
        kinds(kinds_in) {}

  std::int64_t floats() const { return blocks * kinds * width; }
  std::int64_t first(std::int64_t block) const { return block * kRowsPerBlock; }
  std::int64_t last(std::int64_t block) const {
    return std::min(rows, (block + 1) * kRowsPerBlock);
  }
  // The sums of a block, zeroed.
  float* start(std::int64_t block, int kind) const {
    float* const partial = partials + (block * kinds + kind) * width;
    std::fill(partial, partial + width, 0.0f);
    return partial;
  }
  void add_to(int threads, float* out, int kind) const {
    constexpr std::int64_t kPiece = 256;
    parallel_for(threads, (width + kPiece - 1) / kPiece, [&](int, std::int64_t piece) {
      std::int64_t const begin = piece * kPiece, end = std::min(begin + kPiece, width);
      float total[kPiece] = {};
      for (std::int64_t b = 0; b < blocks; ++b) {
        const float* const partial = partials + (b * kinds + kind) * width;
#pragma omp simd
        for (std::int64_t c = begin; c < end; ++c) total[c - begin] += partial[c];
      }
      for (std::int64_t c = begin; c < end; ++c) out[c] += total[c - begin];
    });
  }
};

}  // namespace copus
