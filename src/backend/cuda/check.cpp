#include "backend/cuda/check.h"

#include <fmt/format.h>

#include "copus/core/error.h"

namespace copus::detail {

void cuda_failed(cudaError_t error, const char* call, const char* file, int line) {
  throw CudaError(fmt::format("{}:{}: {} failed: {} ({})", file, line, call,
                              cudaGetErrorName(error), cudaGetErrorString(error)));
}

}  // namespace copus::detail
