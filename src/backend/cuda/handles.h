// Owners of the CUDA runtime's streams, events and pinned memory.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

namespace copus::cuda {

struct StreamCloser {
  void operator()(cudaStream_t stream) const noexcept { cudaStreamDestroy(stream); }
};
using Stream = std::unique_ptr<std::remove_pointer_t<cudaStream_t>, StreamCloser>;
// On `device`, which becomes the calling thread's; waits for no other stream.
Stream open_stream(int device);

struct EventCloser {
  void operator()(cudaEvent_t event) const noexcept { cudaEventDestroy(event); }
};
using Event = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, EventCloser>;
// Without a time: it only marks a place in a stream of the current device.
Event open_event();

struct PinnedCloser {
  void operator()(std::byte* data) const noexcept { cudaFreeHost(data); }
};
using Pinned = std::unique_ptr<std::byte[], PinnedCloser>;
Pinned pinned(std::int64_t bytes);

}  // namespace copus::cuda
