#include <catch2/catch.hpp>
#include <cstdint>
#include <new>
#include <numeric>
#include <string>
#include <vector>

#include "copus/backend/backend.h"
#include "copus/backend/buffer.h"
#include "copus/core/error.h"

namespace copus {

TEST_CASE("memory of any size is aligned to 64 bytes and writable to its end") {
  auto const backend = make_cpu_backend(2);
  std::int64_t const sizes[] = {0, 1, 63, 64, 65, 4096, (2 << 20) - 1, 2 << 20, (2 << 20) + 1};
  for (std::int64_t const bytes : sizes) {
    Buffer const buffer(*backend, bytes);
    CHECK(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64 == 0);
    if (bytes == 0) continue;
    buffer.data()[0] = std::byte{1};
    buffer.data()[bytes - 1] = std::byte{2};
    CHECK(buffer.data()[bytes - 1] == std::byte{2});
  }
}

TEST_CASE("memory that does not exist is refused with the size that was asked for") {
  auto const backend = make_cpu_backend(1);
  std::int64_t const bytes = std::int64_t{1} << 50;
  try {
    Buffer const buffer(*backend, bytes);
    FAIL("a pebibyte was allocated");
  } catch (const std::bad_alloc& error) {
    CHECK(std::string(error.what()).find(std::to_string(bytes)) != std::string::npos);
  }
  CHECK_THROWS_AS(Buffer(*backend, -1), InternalError);
}

TEST_CASE("zero and copy touch a strided view and nothing between its rows") {
  auto const backend = make_cpu_backend(2);
  std::vector<float> from(60), to(60, -1.0f);
  std::iota(from.begin(), from.end(), 0.0f);
  TensorView const whole_from(from.data(), DType::f32, {3, 4, 5});
  TensorView const whole_to(to.data(), DType::f32, {3, 4, 5});
  backend->copy(whole_to.slice(1, 1, 2).slice(2, 2, 3), whole_from.slice(1, 0, 2).slice(2, 1, 3));
  for (int i = 0; i < 60; ++i) {
    int const a = i / 20, b = i / 5 % 4, c = i % 5;
    bool const inside = b >= 1 && b < 3 && c >= 2;
    float const want = inside ? static_cast<float>(a * 20 + (b - 1) * 5 + c - 1) : -1.0f;
    CHECK(to[static_cast<std::size_t>(i)] == want);
  }
  backend->zero(whole_to.slice(1, 1, 2).slice(2, 2, 3));
  for (int i = 0; i < 60; ++i) {
    bool const inside = i / 5 % 4 >= 1 && i / 5 % 4 < 3 && i % 5 >= 2;
    CHECK(to[static_cast<std::size_t>(i)] == (inside ? 0.0f : -1.0f));
  }
}

TEST_CASE("what is uploaded, copied and downloaded comes back, at any length") {
  auto const backend = make_cpu_backend(2);
  for (std::int64_t const n : {0, 1, 1000, 300001}) {
    std::vector<std::int32_t> values(static_cast<std::size_t>(n)), back(values.size(), -1);
    std::iota(values.begin(), values.end(), 7);
    Buffer const a(*backend, n * 4), b(*backend, n * 4);
    TensorView const x(a.data(), DType::i32, {n}), y(b.data(), DType::i32, {n});
    backend->upload(x, values.data());
    backend->copy(y, x);
    backend->download(back.data(), y);
    CHECK(back == values);
    backend->zero(y);
    backend->download(back.data(), y);
    CHECK(back == std::vector<std::int32_t>(values.size(), 0));
  }
}

}  // namespace copus
