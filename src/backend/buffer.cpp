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

Arena::Arena(std::shared_ptr<Buffer> buffer, std::int64_t bytes, End end)
    : buffer_(std::move(buffer)), bytes_(bytes), end_(end) {
  COPUS_CHECK(bytes_ <= buffer_->bytes(), "an arena lies within its buffer");
  COPUS_CHECK(end_ == End::low || buffer_->bytes() % 64 == 0, "its high end is aligned");
}

TensorView Arena::take(DType dtype, std::initializer_list<std::int64_t> sizes) {
  TensorView view(nullptr, dtype, sizes);
  std::int64_t const begin = used_;
  used_ += aligned(view.bytes());
  COPUS_CHECK(used_ <= bytes_, "the arena holds what the memory plan says");
  view.data = buffer_->data() + (end_ == End::low ? begin : buffer_->bytes() - used_);
  return view;
}

}  // namespace copus
