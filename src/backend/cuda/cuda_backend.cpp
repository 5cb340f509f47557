#include "backend/cuda/cuda_backend.h"

#include "backend/cuda/check.h"
#include "copus/core/error.h"

namespace copus {
CudaBackend::CudaBackend(int device) : device_(device), stream_(cuda::open_stream(device)) {}

CudaBackend::~CudaBackend() {
  cudaSetDevice(device_);
  cudaStreamSynchronize(stream());
  if (scratch_ != nullptr) deallocate(scratch_, scratch_bytes_);
}

std::string CudaBackend::name() const {
  return "cuda";
}

std::byte* CudaBackend::scratch(std::int64_t bytes) {
  if (bytes > scratch_bytes_) {
    std::byte* const larger = allocate(bytes);
    // Freeing waits for the kernels that still use it.
    if (scratch_ != nullptr) deallocate(scratch_, scratch_bytes_);
    scratch_ = larger;
    scratch_bytes_ = bytes;
  }
  return scratch_;
}

std::unique_ptr<Backend> make_cuda_backend(int device) {
  return std::make_unique<CudaBackend>(device);
}

}  // namespace copus
