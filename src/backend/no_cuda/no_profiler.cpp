// The twin of cuda/profiler.cpp in a build without CUDA, where no run gets so far.
#include "copus/backend/profiler.h"
#include "copus/core/error.h"

namespace copus {

void open_profiler_window() {
  throw CudaError("a profiler window is for GPUs, and this program was built without CUDA");
}

void close_profiler_window() {
  open_profiler_window();
}

}  // namespace copus
