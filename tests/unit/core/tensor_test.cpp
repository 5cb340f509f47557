#include "copus/core/tensor.h"

#include <catch2/catch.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "copus/core/error.h"

namespace copus {
namespace {

TEST_CASE("a new view is row-major and contiguous") {
  std::vector<float> data(24);
  TensorView const view(data.data(), DType::f32, {2, 3, 4});
  CHECK(view.dims == 3);
  CHECK(view.numel() == 24);
  CHECK(view.bytes() == 96);
  CHECK(view.stride[0] == 12);
  CHECK(view.stride[1] == 4);
  CHECK(view.stride[2] == 1);
  CHECK(view.contiguous());
  CHECK(view);
  CHECK_FALSE(TensorView());
}

TEST_CASE("a slice shows the elements it names and no others") {
  std::vector<float> data(24);
  std::iota(data.begin(), data.end(), 0.0f);
  TensorView const view(data.data(), DType::f32, {2, 3, 4});
  TensorView const middle = view.slice(1, 1, 2);  // (2, 2, 4)
  CHECK(middle.numel() == 16);
  CHECK(middle.size[1] == 2);
  CHECK(middle.stride == view.stride);
  CHECK(middle.ptr<float>() == data.data() + 4);
  CHECK_FALSE(middle.contiguous());
  TensorView const column = middle.slice(2, 3, 1);
  CHECK(*column.ptr<float>() == 7.0f);
}

TEST_CASE("a slice of the first dimension stays contiguous and counts bytes by its type") {
  std::vector<std::uint16_t> data(12);
  TensorView const view(data.data(), DType::bf16, {3, 4});
  TensorView const last = view.slice(0, 2, 1);
  CHECK(last.contiguous());
  CHECK(last.bytes() == 8);
  CHECK(last.ptr<std::uint16_t>() == data.data() + 8);
}

TEST_CASE("a dimension of size one never breaks contiguity") {
  std::vector<float> data(12);
  TensorView const view(data.data(), DType::f32, {3, 4});
  CHECK(view.slice(0, 1, 1).contiguous());
  CHECK_FALSE(view.slice(1, 1, 1).contiguous());
  CHECK(TensorView(data.data(), DType::f32, {1, 4}).slice(0, 0, 1).contiguous());
}

TEST_CASE("reshape keeps address and elements") {
  std::vector<float> data(24);
  TensorView const view = TensorView(data.data(), DType::f32, {2, 3, 4}).reshape({6, 4});
  CHECK(view.dims == 2);
  CHECK(view.stride[0] == 4);
  CHECK(view.span<float>().data() == data.data());
  CHECK(view.span<float>().size() == 24);
}

TEST_CASE("views with no elements are allowed") {
  TensorView const view(nullptr, DType::i32, {0, 4});
  CHECK(view.numel() == 0);
  CHECK(view.reshape({0}).numel() == 0);
  std::vector<float> data(4);
  CHECK(TensorView(data.data(), DType::f32, {4}).slice(0, 4, 0).numel() == 0);
}

TEST_CASE("what would leave the view is an internal error") {
  std::vector<float> data(24);
  TensorView const view(data.data(), DType::f32, {2, 3, 4});
  CHECK_THROWS_AS(view.slice(1, 2, 2), InternalError);
  CHECK_THROWS_AS(view.slice(1, -1, 1), InternalError);
  CHECK_THROWS_AS(view.slice(1, 0, -1), InternalError);
  CHECK_THROWS_AS(view.slice(3, 0, 1), InternalError);
  CHECK_THROWS_AS(view.reshape({5, 5}), InternalError);
  CHECK_THROWS_AS(view.slice(1, 0, 2).reshape({16}), InternalError);
  CHECK_THROWS_AS(TensorView(data.data(), DType::f32, {1, 1, 1, 1, 24}), InternalError);
}

TEST_CASE(
    "a failing COPUS_CHECK throws InternalError with the condition, the message and the place") {
  std::string text;
  try {
    COPUS_CHECK(1 + 1 == 3, "arithmetic holds");
  } catch (const InternalError& e) {
    text = e.what();
  }
  CHECK_THAT(text, Catch::Contains("1 + 1 == 3") && Catch::Contains("arithmetic holds") &&
                       Catch::Contains("tensor_test.cpp:"));
  CHECK_NOTHROW([] { COPUS_CHECK(true, "never"); }());
}

TEST_CASE("a ConfigError keeps every problem and joins them in its text") {
  ConfigError const error(std::vector<std::string>{"a: wrong", "b: wrong too"});
  CHECK(error.problems().size() == 2);
  CHECK(std::string(error.what()) == "a: wrong\nb: wrong too");
}

}  // namespace
}  // namespace copus
