// Copies between a device's memory and the host's, for whoever moves tensors between ranks: beside
// the backend's own stream, so that computing goes on meanwhile.
#pragma once
#include <cstddef>
#include <cstdint>

namespace copus {

// One thread at a time uses it, which need not be the backend's own.
class HostCopies {
 public:
  virtual ~HostCopies() = default;
  // Host memory of at least `bytes` that the device reaches at full speed (pinned). Valid until
  // the next call.
  virtual std::byte* room(std::int64_t bytes) = 0;
  // Copies that follow see what the backend was given to do before, and do not disturb it.
  virtual void follow() = 0;
  // Start one; `host` lies in the room, or in any memory of the host at less speed.
  virtual void download(void* host, const void* device, std::int64_t bytes) = 0;
  virtual void upload(void* device, const void* host, std::int64_t bytes) = 0;
  // Returns when all that was started is done.
  virtual void wait() = 0;
};

}  // namespace copus
