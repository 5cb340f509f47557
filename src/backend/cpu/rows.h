// Loops of the CPU over the rows of tensors.
#pragma once
#include <algorithm>
#include <cstdint>

#include "backend/cpu/parallel_for.h"
#include "backend/rows.h"

namespace copus {

// body(row, begin, end) over all elements, cut into pieces of fixed size whatever the threads.
template <class T, class Body>
void for_elements(int threads, const RowsOf<T>& shape, const Body& body) {
  constexpr std::int64_t kPiece = 1 << 14;
  if (shape.rows == 0 || shape.width == 0) return;
  std::int64_t const columns = std::min(shape.width, kPiece);
  std::int64_t const rows = std::max<std::int64_t>(1, kPiece / shape.width);
  std::int64_t const across = (shape.width + columns - 1) / columns;
  std::int64_t const down = (shape.rows + rows - 1) / rows;
  parallel_for(threads, across * down, [&](int, std::int64_t piece) {
    std::int64_t const begin = piece % across * columns;
    std::int64_t const end = std::min(begin + columns, shape.width);
    std::int64_t const first = piece / across * rows;
    std::int64_t const last = std::min(first + rows, shape.rows);
    for (std::int64_t row = first; row < last; ++row) body(row, begin, end);
  });
}

// body(worker, first, last) over blocks of `block` rows.
template <class Body>
void for_row_blocks(int threads, std::int64_t rows, std::int64_t block, const Body& body) {
  parallel_for(threads, (rows + block - 1) / block, [&](int worker, std::int64_t i) {
    body(worker, i * block, std::min((i + 1) * block, rows));
  });
}

}  // namespace copus
