// What has passed through a group so far, as one of its ranks saw it.
#pragma once
#include <atomic>
#include <cstdint>

namespace copus {

struct GroupTraffic {
  // In its calls, waits for peers included; of a message that has been started, what was waited for
  // it: its time under compute is not in here.
  double seconds = 0.0;
  // What this rank had to send: for n ranks 2 (n-1)/n of an all-reduced tensor, (n-1)/n of a
  // scattered or gathered one, all of a message. Over seconds: the bus bandwidth of nccl-tests.
  std::int64_t bus_bytes = 0;

  double bus_bandwidth() const {
    return seconds > 0.0 ? static_cast<double>(bus_bytes) / seconds : 0.0;
  }
};

// A rank's running count of it. One thread at a time adds, any may read: the queue's thread gathers
// weights while the run looks.
class TrafficCounter {
 public:
  void add_bytes(std::int64_t bytes) { bus_bytes_.fetch_add(bytes, std::memory_order_relaxed); }
  void add_seconds(double seconds) { seconds_.fetch_add(seconds, std::memory_order_relaxed); }
  GroupTraffic now() const {
    return {seconds_.load(std::memory_order_relaxed), bus_bytes_.load(std::memory_order_relaxed)};
  }

 private:
  std::atomic<double> seconds_{0.0};
  std::atomic<std::int64_t> bus_bytes_{0};
};

}  // namespace copus
