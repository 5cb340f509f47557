// Turns a failed CUDA runtime call into a CudaError that names the call, the file and the line.
#pragma once
#include <cuda_runtime_api.h>

namespace copus::detail {
[[noreturn]] void cuda_failed(cudaError_t error, const char* call, const char* file, int line);
}

#define CUDA_CHECK(call)                                                         \
  do {                                                                           \
    cudaError_t const cuda_check_error = (call);                                 \
    if (cuda_check_error != cudaSuccess)                                         \
      ::copus::detail::cuda_failed(cuda_check_error, #call, __FILE__, __LINE__); \
  } while (false)
