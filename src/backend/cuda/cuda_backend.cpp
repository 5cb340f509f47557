#include "backend/cuda/cuda_backend.h"

#include <limits>

#include "backend/cuda/check.h"
#include "copus/backend/attention_kernel.h"
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

AttentionLibrary CudaBackend::attention_library() const {
  return cudnn_problem().empty() ? AttentionLibrary::cudnn : AttentionLibrary::none;
}

cuda::AttentionRoom CudaBackend::attention_room(const AttentionOptions& options) {
  if (!options.workspace) {
    return {std::numeric_limits<std::int64_t>::max(),
            [this](std::int64_t bytes) { return scratch(bytes); }};
  }
  // An arena aligns to 64 bytes, kernels are used to what cudaMalloc gives.
  constexpr std::uintptr_t kAlignment = 256;
  auto const begin = reinterpret_cast<std::uintptr_t>(options.workspace.data);
  auto const skipped = static_cast<std::int64_t>((kAlignment - begin % kAlignment) % kAlignment);
  std::byte* const first = options.workspace.ptr<std::byte>() + skipped;
  return {options.workspace.bytes() - static_cast<std::int64_t>(kAlignment),
          [first](std::int64_t) { return first; }};
}

std::unique_ptr<Backend> make_cuda_backend(int device) {
  return std::make_unique<CudaBackend>(device);
}

}  // namespace copus
