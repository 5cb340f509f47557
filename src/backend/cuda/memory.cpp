#include <fmt/format.h>

#include <new>
#include <string>

#include "backend/cuda/check.h"
#include "backend/cuda/cuda_backend.h"
#include "copus/core/error.h"

namespace copus {
namespace {

class OutOfDeviceMemory : public std::bad_alloc {
 public:
  OutOfDeviceMemory(std::int64_t bytes, std::size_t free, std::size_t total)
      : message_(fmt::format("cannot allocate {} bytes ({:.2f} GiB) of device memory: {:.2f} of "
                             "{:.2f} GiB are free",
                             bytes, gibibytes(static_cast<double>(bytes)),
                             gibibytes(static_cast<double>(free)),
                             gibibytes(static_cast<double>(total)))) {}
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  static double gibibytes(double bytes) { return bytes / (1 << 30); }
  std::string message_;
};

}  // namespace

std::byte* CudaBackend::allocate(std::int64_t bytes) {
  COPUS_CHECK(bytes >= 0, "a size is not negative");
  void* data = nullptr;
  cudaError_t const error = cudaMalloc(&data, static_cast<std::size_t>(bytes > 0 ? bytes : 1));
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // told here: the next check must not see it
    std::size_t free = 0, total = 0;
    CUDA_CHECK(cudaMemGetInfo(&free, &total));
    throw OutOfDeviceMemory(bytes, free, total);
  }
  CUDA_CHECK(error);
  return static_cast<std::byte*>(data);
}

std::int64_t CudaBackend::free_bytes() {
  std::size_t free = 0, total = 0;
  CUDA_CHECK(cudaMemGetInfo(&free, &total));
  return static_cast<std::int64_t>(free);
}

void CudaBackend::deallocate(std::byte* data, std::int64_t) noexcept {
  cudaFree(data);
}

void CudaBackend::upload(TensorView out, const void* host) {
  COPUS_CHECK(out.contiguous(), "an upload fills a contiguous tensor");
  if (out.numel() == 0) return;
  CUDA_CHECK(cudaMemcpyAsync(out.data, host, static_cast<std::size_t>(out.bytes()),
                             cudaMemcpyHostToDevice, stream()));
  // The caller may change `host` at once. Pageable memory has been staged by now, pinned has not.
  synchronize();
}

void CudaBackend::download(void* host, const TensorView& x) {
  COPUS_CHECK(x.contiguous(), "a download reads a contiguous tensor");
  if (x.numel() == 0) return;
  CUDA_CHECK(cudaMemcpyAsync(host, x.data, static_cast<std::size_t>(x.bytes()),
                             cudaMemcpyDeviceToHost, stream()));
  synchronize();
}

void CudaBackend::synchronize() {
  CUDA_CHECK(cudaStreamSynchronize(stream()));
}

}  // namespace copus
