#include "backend/cuda/handles.h"

#include "backend/cuda/check.h"

namespace copus::cuda {

Stream open_stream(int device) {
  CUDA_CHECK(cudaSetDevice(device));
  cudaStream_t stream = nullptr;
  CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return Stream(stream);
}

Event open_event() {
  cudaEvent_t event = nullptr;
  CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return Event(event);
}

Pinned pinned(std::int64_t bytes) {
  void* data = nullptr;
  // Portable: pinned for every device of the process.
  CUDA_CHECK(cudaHostAlloc(&data, static_cast<std::size_t>(bytes), cudaHostAllocPortable));
  return Pinned(static_cast<std::byte*>(data));
}

}  // namespace copus::cuda
