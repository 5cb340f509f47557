#include <catch2/catch.hpp>

#include "copus/backend/make_backend.h"
#include "copus/core/error.h"

using namespace copus;

TEST_CASE("device: cpu is the CPU, and auto the CPU where no CUDA device can be used") {
  CHECK(make_backend(DeviceChoice::cpu, 1)->name() == "cpu");
  bool const usable = cuda_problem().empty();
  CHECK(make_backend(DeviceChoice::automatic, 1)->name() == (usable ? "cuda" : "cpu"));
}

TEST_CASE("device: cuda where no CUDA device can be used is refused with the reason") {
  std::string const problem = cuda_problem();
  if (problem.empty()) {
    CHECK(make_backend(DeviceChoice::cuda, 1)->name() == "cuda");
    return;
  }
  try {
    make_backend(DeviceChoice::cuda, 1);
    FAIL("nothing was thrown");
  } catch (const ConfigError& error) {
    std::string const text = error.what();
    CHECK(text.find("device: cuda") != std::string::npos);
    CHECK(text.find(problem) != std::string::npos);
    CHECK(text.find("accepted here: cpu, auto") != std::string::npos);
  }
  CHECK_THROWS_AS(make_cuda_backend(0), CudaError);
}
