// A tensor seen as equally spaced rows of contiguous elements: what the loops and kernels of
// every device walk.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include "copus/core/error.h"
#include "copus/core/tensor.h"

namespace copus {

template <class T>
struct RowsOf {
  T* data = nullptr;
  std::int64_t rows = 0, width = 0, stride = 0;
  T* row(std::int64_t i) const { return data + i * stride; }
};
using Rows = RowsOf<float>;

// The last dimension as width, the others as rows. A view whose leading dimensions cannot be walked
// with one stride is our mistake.
template <class T = float>
RowsOf<T> rows_of(const TensorView& x) {
  COPUS_CHECK(x.dtype == kDTypeOf<T> && x.dims >= 1, "a tensor of the type that its rows have");
  auto const at = [](int dim) { return static_cast<std::size_t>(dim); };
  RowsOf<T> r{x.ptr<T>(), 1, x.size[at(x.dims - 1)], x.size[at(x.dims - 1)]};
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
template <class T = float>
RowsOf<T> flat_rows_of(const TensorView& x) {
  if (!x.contiguous()) return rows_of<T>(x);
  COPUS_CHECK(x.dtype == kDTypeOf<T>, "a tensor of the type that its rows have");
  return {x.ptr<T>(), 1, x.numel(), x.numel()};
}

// The elements of tensors of the same sizes as rows of the same shape, as long as all allow.
template <std::size_t n, class T = float>
std::array<RowsOf<T>, n> same_rows(const std::array<TensorView, n>& tensors) {
  std::array<RowsOf<T>, n> rows;
  bool flat = true;
  for (const TensorView& t : tensors) {
    COPUS_CHECK(t.dims == tensors[0].dims && t.size == tensors[0].size,
                "tensors of the same sizes");
    flat = flat && t.contiguous();
  }
  for (std::size_t i = 0; i < n; ++i) {
    rows[i] = flat ? flat_rows_of<T>(tensors[i]) : rows_of<T>(tensors[i]);
  }
  return rows;
}

}  // namespace copus
