#include "copus/backend/buffer.h"

#include <utility>

#include "copus/core/error.h"

namespace copus {

Buffer::Buffer(Backend& backend, std::int64_t bytes)
    : backend_(&backend), data_(backend.allocate(bytes)), bytes_(bytes) {}

Buffer::~Buffer() {
  if (data_ != nullptr) backend_->deallocate(data_, bytes_);
}

Buffer::Buffer(Buffer&& other) noexcept
    : backend_(other.backend_),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(backend_, other.backend_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

TensorView Arena::take(DType dtype, std::initializer_list<std::int64_t> sizes) {
  TensorView view(buffer_.data() + used_, dtype, sizes);
  used_ += aligned(view.bytes());
  COPUS_CHECK(used_ <= buffer_.bytes(), "the arena holds what the memory plan says");
  return view;
}

}  // namespace copus
