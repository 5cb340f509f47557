#include "backend/cuda/cuda_backend.h"

#include "backend/cuda/check.h"
#include "copus/core/error.h"

namespace copus {
namespace {

cudaStream_t open_stream(int device) {
  CUDA_CHECK(cudaSetDevice(device));
  cudaStream_t stream = nullptr;
  CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}

}  // namespace

void CudaBackend::StreamCloser::operator()(cudaStream_t stream) const noexcept {
  cudaStreamDestroy(stream);
}

CudaBackend::CudaBackend(int device) : device_(device), stream_(open_stream(device)) {}

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

double CudaBackend::fetch(const double* value) {
  double host = 0.0;
  CUDA_CHECK(cudaMemcpyAsync(&host, value, sizeof host, cudaMemcpyDeviceToHost, stream()));
  synchronize();
  return host;
}

std::unique_ptr<Backend> make_cuda_backend(int device) {
  return std::make_unique<CudaBackend>(device);
}

}  // namespace copus
