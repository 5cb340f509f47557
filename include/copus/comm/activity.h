// What a rank's communicators are in the middle of, for whoever asks why nothing moves.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace copus {

// One thread's calls: it writes, any other may read.
class CallRecord {
 public:
  void begin(const char* group, const char* operation) {
    group_.store(group, std::memory_order_relaxed);
    operation_.store(operation, std::memory_order_relaxed);
    since_.store(now(), std::memory_order_relaxed);
    calls_.fetch_add(1, std::memory_order_release);
    inside_.store(true, std::memory_order_release);
  }
  void end() { inside_.store(false, std::memory_order_release); }

  struct Call {
    std::string words;  // "all_reduce over dp (call 17)"
    std::int64_t number = 0;
    double seconds = 0.0;  // so far
  };
  std::optional<Call> current() const;

 private:
  static std::int64_t now() {
    return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  }
  std::atomic<const char*> group_{""}, operation_{""};
  std::atomic<std::int64_t> since_{0}, calls_{0};
  std::atomic<bool> inside_{false};
};

// A rank's: of its own thread, and of the one that sums gradients under backward.
struct CommActivity {
  CallRecord own, queue;
  // What the rank does besides training, "saving a checkpoint": peers may then wait for one that
  // works alone. Empty: it trains.
  std::atomic<const char*> phase{""};
};

// The rank is in a phase for as long as this lives.
class PhaseMark {
 public:
  PhaseMark(CommActivity& activity, const char* words)
      : activity_(activity), before_(activity.phase.exchange(words)) {}
  ~PhaseMark() { activity_.phase = before_; }
  PhaseMark(const PhaseMark&) = delete;
  PhaseMark& operator=(const PhaseMark&) = delete;

 private:
  CommActivity& activity_;
  const char* before_;
};

}  // namespace copus
