// A view of a tensor in some rank's memory: address, type, sizes, strides. It never owns.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "copus/core/dtype.h"

namespace copus {

struct TensorView {
  static constexpr int kMaxDims = 4;

  void* data = nullptr;
  DType dtype = DType::f32;
  int dims = 0;
  std::array<std::int64_t, kMaxDims> size{};  // elements
  std::array<std::int64_t, kMaxDims>
      stride{};  // elements; the last is 1 in every view the operations take

  TensorView() = default;
  // Row-major and contiguous.
  TensorView(void* data, DType dtype, std::initializer_list<std::int64_t> sizes);

  explicit operator bool() const { return data != nullptr; }
  std::int64_t numel() const;
  std::int64_t bytes() const { return numel() * size_of(dtype); }
  bool contiguous() const;

  // The same elements under another shape; contiguous views only.
  TensorView reshape(std::initializer_list<std::int64_t> sizes) const;
  // Indices [begin, begin + count) of dimension `dim`.
  TensorView slice(int dim, std::int64_t begin, std::int64_t count) const;

  // Elements of a contiguous view on the host. The type must match dtype.
  template <class T>
  std::span<T> span() const {
    return {static_cast<T*>(data), static_cast<std::size_t>(numel())};
  }
  template <class T>
  T* ptr() const {
    return static_cast<T*>(data);
  }
};

}  // namespace copus
