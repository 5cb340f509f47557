// Whether this process can use a CUDA device, in words.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "copus/backend/backend.h"

namespace copus {
namespace {

std::string version(int number) {
  return fmt::format("{}.{}", number / 1000, number % 1000 / 10);
}

// The compute capability of the oldest device that this build has code for, as 10 major + minor.
constexpr int kOldest = COPUS_CUDA_OLDEST_ARCHITECTURE;

}  // namespace

std::string cuda_problem() {
  int driver = 0, devices = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
    return "this machine has no NVIDIA driver";
  }
  cudaError_t const error = cudaGetDeviceCount(&devices);
  if (error == cudaErrorInsufficientDriver) {
    return fmt::format("the NVIDIA driver is for CUDA {} and this build needs {}", version(driver),
                       version(CUDART_VERSION));
  }
  if (error == cudaErrorNoDevice || (error == cudaSuccess && devices == 0)) {
    return "the NVIDIA driver shows no device to this process";
  }
  if (error != cudaSuccess) {
    return fmt::format("the NVIDIA driver does not answer: {}", cudaGetErrorString(error));
  }
  cudaDeviceProp properties{};
  if (cudaError_t const asked = cudaGetDeviceProperties(&properties, 0); asked != cudaSuccess) {
    return fmt::format("device 0 does not answer: {}", cudaGetErrorString(asked));
  }
  if (properties.major * 10 + properties.minor < kOldest) {
    return fmt::format("{} has compute capability {}.{} and this build is for {}.{} and newer",
                       properties.name, properties.major, properties.minor, kOldest / 10,
                       kOldest % 10);
  }
  return "";
}

}  // namespace copus
