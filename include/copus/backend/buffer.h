// Memory of a device, owned; and the arena that a step's tensors are cut from.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "copus/backend/backend.h"

namespace copus {

class Buffer {
 public:
  Buffer() = default;
  Buffer(Backend& backend, std::int64_t bytes);
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;

  std::byte* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  Backend* backend_ = nullptr;
  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

// Cuts tensors from one buffer, each 64-byte aligned, in the order of the memory plan: from its low
// end upwards or from its high end downwards. Running past the end is our mistake: the plan and the
// code that carries it out must agree to the byte.
class Arena {
 public:
  enum class End : std::uint8_t { low, high };

  // All of a new buffer.
  Arena(Backend& backend, std::int64_t bytes)
      : Arena(std::make_shared<Buffer>(backend, bytes), bytes, End::low) {}
  // `bytes` at one end of a buffer that others may be cut from too: what they overlap in must not
  // live at the same time.
  Arena(std::shared_ptr<Buffer> buffer, std::int64_t bytes, End end);

  TensorView take(DType dtype, std::initializer_list<std::int64_t> sizes);
  std::int64_t used() const { return used_; }
  std::int64_t bytes() const { return bytes_; }
  End end() const { return end_; }
  const std::shared_ptr<Buffer>& buffer() const { return buffer_; }

  static std::int64_t aligned(std::int64_t bytes) { return (bytes + 63) / 64 * 64; }

 private:
  std::shared_ptr<Buffer> buffer_;
  std::int64_t bytes_ = 0, used_ = 0;
  End end_ = End::low;
};

}  // namespace copus
