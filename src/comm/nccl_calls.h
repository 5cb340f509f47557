// Calls of NCCL, and how a rank waits for what they have started.
#pragma once
#include <fmt/format.h>
#include <nccl.h>

#include <chrono>
#include <thread>

#include "copus/core/error.h"

namespace copus {

// All ranks have come together, or something is wrong with the network between them.
inline constexpr std::chrono::seconds kJoinTime{180};

[[noreturn]] inline void nccl_failed(ncclResult_t result, ncclComm_t comm, const char* call,
                                     const char* file, int line) {
  throw CommError(fmt::format("{}:{}: {} failed: {} ({})", file, line, call,
                              ncclGetErrorString(result), ncclGetLastError(comm)));
}
#define NCCL_CHECK(call)                                             \
  do {                                                               \
    ncclResult_t const nccl_result = (call);                         \
    if (nccl_result != ncclSuccess && nccl_result != ncclInProgress) \
      nccl_failed(nccl_result, nullptr, #call, __FILE__, __LINE__);  \
  } while (false)

inline ncclConfig_t config_of_ours() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

// A short busy wait, then turns of sleep: the core may be another rank's.
class Patience {
 public:
  void pause() {
    constexpr int kBusyLooks = 2000;
    if (++looks_ < kBusyLooks) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

 private:
  int looks_ = 0;
};

}  // namespace copus
