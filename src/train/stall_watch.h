// Says which call a rank is stuck in, when it is: after a minute of training, ten of saving or the
// like, and when the rank is asked to stop and cannot.
#pragma once
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "copus/comm/activity.h"

namespace copus {

// Seconds in one call before it is spoken of.
struct StallLimits {
  double training = 60.0;
  double phase = 600.0;  // a peer may be busy with its part of it
  // Long for a call of a healthy run, and short enough that a launcher which ends a job lets it be
  // said: Open MPI waits a second between SIGTERM and SIGKILL.
  double stopping = 0.3;
};

class StallWatch {
 public:
  // `activity` and `stop` (whether the rank has been asked to end) outlive this, and are asked from
  // a thread of its own; `say` gets one sentence a stuck call. It only speaks: a call lasts for as
  // long as its peers take.
  StallWatch(const CommActivity& activity, std::function<bool()> stop,
             std::function<void(const std::string&)> say, StallLimits limits = {});
  ~StallWatch();
  StallWatch(const StallWatch&) = delete;
  StallWatch& operator=(const StallWatch&) = delete;

 private:
  // The call of one thread that was last spoken of.
  struct Spoken {
    std::int64_t number = -1;
    bool of_stop = false;
  };
  void run();
  void look(const CallRecord& record, Spoken& spoken);

  const CommActivity& activity_;
  std::function<bool()> stop_;
  std::function<void(const std::string&)> say_;
  StallLimits limits_;
  Spoken own_, queue_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool end_ = false;
  std::thread thread_;
};

}  // namespace copus
