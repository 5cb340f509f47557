// A float tensor seen as equally spaced rows of contiguous elements: what every CPU loop walks.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>

#include "backend/cpu/parallel_for.h"
#include "copus/core/error.h"
#include "copus/core/tensor.h"

namespace copus {

struct Rows {
  float* data = nullptr;
  std::int64_t rows = 0, width = 0, stride = 0;
  float* row(std::int64_t i) const { return data + i * stride; }
};

// The last dimension as width, the others as rows. A view whose leading dimensions cannot be walked
// with one stride is our mistake.
inline Rows rows_of(const TensorView& x) {
  COPUS_CHECK(x.dtype == DType::f32 && x.dims >= 1, "an f32 tensor");
  auto const at = [](int dim) { return static_cast<std::size_t>(dim); };
  Rows r{x.ptr<float>(), 1, x.size[at(x.dims - 1)], x.size[at(x.dims - 1)]};
  COPUS_CHECK(r.width <= 1 || x.stride[at(x.dims - 1)] == 1,
              "the elements of a row are neighbours");
  for (int d = x.dims - 2; d >= 0; --d) {
    std::int64_t const size = x.size[at(d)];
    if (size != 1) {
      if (r.rows == 1) {
        r.stride = x.stride[at(d)];
      } else {
        COPUS_CHECK(x.stride[at(d)] == r.stride * r.rows || size == 0, "rows are equally spaced");
      }
    }
    r.rows *= size;
  }
  return r;
}

// The same as rows_of, but a contiguous tensor becomes one long row.
inline Rows flat_rows_of(const TensorView& x) {
  if (!x.contiguous()) return rows_of(x);
  COPUS_CHECK(x.dtype == DType::f32, "an f32 tensor");
  return {x.ptr<float>(), 1, x.numel(), x.numel()};
}

// The elements of tensors of the same sizes as rows of the same shape, as long as all allow.
template <std::size_t n>
std::array<Rows, n> same_rows(const std::array<TensorView, n>& tensors) {
  std::array<Rows, n> rows;
  bool flat = true;
  for (const TensorView& t : tensors) {
    COPUS_CHECK(t.dims == tensors[0].dims && t.size == tensors[0].size,
                "tensors of the same sizes");
    flat = flat && t.contiguous();
  }
  for (std::size_t i = 0; i < n; ++i) {
    rows[i] = flat ? flat_rows_of(tensors[i]) : rows_of(tensors[i]);
  }
  return rows;
}

// body(row, begin, end) over all elements, cut into pieces of fixed size whatever the threads.
template <class Body>
void for_elements(int threads, const Rows& shape, const Body& body) {
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
