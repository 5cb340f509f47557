#include "copus/core/tensor.h"

#include "copus/core/error.h"

namespace copus {
namespace {

constexpr std::size_t at(int dim) {
  return static_cast<std::size_t>(dim);
}

}  // namespace

TensorView::TensorView(void* data_in, DType dtype_in, std::initializer_list<std::int64_t> sizes)
    : data(data_in), dtype(dtype_in), dims(static_cast<int>(sizes.size())) {
  COPUS_CHECK(dims <= kMaxDims, "a tensor has at most four dimensions");
  std::copy(sizes.begin(), sizes.end(), size.begin());
  std::int64_t step = 1;
  for (int i = dims - 1; i >= 0; --i) {
    stride[at(i)] = step;
    step *= size[at(i)];
  }
}

std::int64_t TensorView::numel() const {
  std::int64_t n = 1;
  for (int i = 0; i < dims; ++i) n *= size[at(i)];
  return n;
}

bool TensorView::contiguous() const {
  std::int64_t step = 1;
  for (int i = dims - 1; i >= 0; --i) {
    if (size[at(i)] != 1 && stride[at(i)] != step) return false;
    step *= size[at(i)];
  }
  return true;
}

TensorView TensorView::reshape(std::initializer_list<std::int64_t> sizes) const {
  TensorView const view(data, dtype, sizes);
  COPUS_CHECK(contiguous() && view.numel() == numel(),
              "reshape keeps the elements of a contiguous view");
  return view;
}

TensorView TensorView::slice(int dim, std::int64_t begin, std::int64_t count) const {
  COPUS_CHECK(dim < dims && begin >= 0 && count >= 0 && begin + count <= size[at(dim)],
              "a slice lies inside its view");
  TensorView view = *this;
  view.data = static_cast<std::byte*>(data) + begin * stride[at(dim)] * size_of(dtype);
  view.size[at(dim)] = count;
  return view;
}

}  // namespace copus
