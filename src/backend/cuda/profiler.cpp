#include "copus/backend/profiler.h"

#include <cuda_profiler_api.h>

#include "backend/cuda/check.h"

namespace copus {

void open_profiler_window() {
  CUDA_CHECK(cudaProfilerStart());
}

void close_profiler_window() {
  CUDA_CHECK(cudaProfilerStop());
}

}  // namespace copus
