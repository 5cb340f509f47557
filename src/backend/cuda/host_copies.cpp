#include "copus/backend/host_copies.h"

#include "backend/cuda/check.h"
#include "backend/cuda/cuda_backend.h"

namespace copus {
namespace {

class CudaHostCopies final : public HostCopies {
 public:
  explicit CudaHostCopies(const CudaBackend& backend)
      : backend_(backend),
        stream_(cuda::open_stream(backend.device())),
        mark_(cuda::open_event()) {}

  std::byte* room(std::int64_t bytes) override {
    if (bytes > bytes_) {
      take_device();
      room_.reset();  // not both at a time
      bytes_ = 0;
      room_ = cuda::pinned(bytes);
      bytes_ = bytes;
    }
    return room_.get();
  }
  void follow() override {
    take_device();
    CUDA_CHECK(cudaEventRecord(mark_.get(), backend_.stream()));
    CUDA_CHECK(cudaStreamWaitEvent(stream_.get(), mark_.get()));
  }
  void download(void* host, const void* device, std::int64_t bytes) override {
    copy(host, device, bytes, cudaMemcpyDeviceToHost);
  }
  void upload(void* device, const void* host, std::int64_t bytes) override {
    copy(device, host, bytes, cudaMemcpyHostToDevice);
  }
  void wait() override {
    take_device();
    CUDA_CHECK(cudaStreamSynchronize(stream_.get()));
  }

 private:
  // The calling thread may never have used the device.
  void take_device() { CUDA_CHECK(cudaSetDevice(backend_.device())); }
  void copy(void* to, const void* from, std::int64_t bytes, cudaMemcpyKind kind) {
    if (bytes == 0) return;
    take_device();
    CUDA_CHECK(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), kind, stream_.get()));
  }

  const CudaBackend& backend_;
  cuda::Stream stream_;
  cuda::Event mark_;
  cuda::Pinned room_;
  std::int64_t bytes_ = 0;
};

}  // namespace

std::unique_ptr<HostCopies> CudaBackend::host_copies() {
  return std::make_unique<CudaHostCopies>(*this);
}

}  // namespace copus
