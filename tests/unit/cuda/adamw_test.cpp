// These tests link the CUDA kernels; without a driver they prove that such a program still starts.
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "backend/cuda/check.h"
#include "backend/cuda/kernels.h"
#include "copus/core/error.h"

using namespace copus;

namespace {

int device_count() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

// Device memory with a copy of `host` at `offset` floats from an aligned address.
class DeviceCopy {
 public:
  DeviceCopy(const std::vector<float>& host, std::size_t offset) : count_(host.size()) {
    CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(&base_), (count_ + offset) * sizeof(float)));
    data_ = base_ + offset;
    CUDA_CHECK(cudaMemcpy(data_, host.data(), count_ * sizeof(float), cudaMemcpyHostToDevice));
  }
  ~DeviceCopy() { cudaFree(base_); }
  DeviceCopy(const DeviceCopy&) = delete;
  DeviceCopy& operator=(const DeviceCopy&) = delete;

  TensorView view() const {
    return TensorView(data_, DType::f32, {static_cast<std::int64_t>(count_)});
  }
  std::vector<float> download() const {
    std::vector<float> host(count_);
    CUDA_CHECK(cudaMemcpy(host.data(), data_, count_ * sizeof(float), cudaMemcpyDeviceToHost));
    return host;
  }

 private:
  std::size_t count_;
  float* base_ = nullptr;
  float* data_ = nullptr;
};

std::vector<float> random_values(std::size_t count, float scale, std::uint64_t& state) {
  std::vector<float> values(count);
  for (float& x : values) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    x = scale * (static_cast<float>(state >> 40) / 8388608.0f - 1.0f);
  }
  return values;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

math::AdamScalars const kScalars{1e-3f, 0.9f, 0.95f, 1e-8f, 0.1f, 0.271f, 0.142625f};

}  // namespace

TEST_CASE("a failed CUDA call throws a CudaError that names the call and the reason") {
  try {
    CUDA_CHECK(cudaSetDevice(-1));
    FAIL("nothing was thrown");
  } catch (const CudaError& error) {
    std::string const text = error.what();
    CHECK(text.find("cudaSetDevice(-1)") != std::string::npos);
    CHECK(text.find("adamw_test.cpp") != std::string::npos);
    CHECK(text.find("cudaError") != std::string::npos);
  }
}

TEST_CASE("AdamW on CUDA refuses ranges of different lengths before it launches anything") {
  std::vector<float> host(8);
  TensorView const eight(host.data(), DType::f32, {8}), seven(host.data(), DType::f32, {7});
  CHECK_THROWS_AS(cuda::adamw(nullptr, eight, eight, eight, seven, 1.0f, kScalars), InternalError);
}

TEST_CASE("without a CUDA device a launch throws a CudaError") {
  if (device_count() > 0) return;
  std::vector<float> host(8);
  TensorView const x(host.data(), DType::f32, {8});
  CHECK_THROWS_AS(cuda::adamw(nullptr, x, x, x, x, 1.0f, kScalars), CudaError);
}

TEST_CASE("AdamW on CUDA gives the bits of the formula on the host", "[gpu]") {
  if (device_count() == 0) {
    WARN("skipped: no CUDA device here");
    return;
  }
  std::size_t const count = GENERATE(1u, 3u, 4u, 1027u, 5000003u);
  std::size_t const offset = GENERATE(0u, 1u);  // 1: no 16-byte accesses
  std::uint64_t state = count + offset;
  auto weight = random_values(count, 1.0f, state), m = random_values(count, 0.1f, state);
  auto v = random_values(count, 0.01f, state), grad = random_values(count, 0.3f, state);
  for (float& x : v) x *= x;
  float const grad_scale = 0.37f;

  DeviceCopy const on_weight(weight, offset), on_m(m, offset), on_v(v, offset),
      on_grad(grad, offset);
  cuda::adamw(nullptr, on_weight.view(), on_m.view(), on_v.view(), on_grad.view(), grad_scale,
              kScalars);
  CUDA_CHECK(cudaDeviceSynchronize());
  for (std::size_t i = 0; i < count; ++i)
    math::adamw(weight[i], m[i], v[i], grad[i] * grad_scale, kScalars);
  CHECK(same_bits(on_weight.download(), weight));
  CHECK(same_bits(on_m.download(), m));
  CHECK(same_bits(on_v.download(), v));
}
