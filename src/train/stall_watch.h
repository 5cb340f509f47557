// Says which call a rank is stuck in, when it is: after a minute, and when the rank is asked to
// stop and cannot.
#pragma once
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "copus/comm/activity.h"

namespace copus {

class StallWatch {
 public:
  // `activity` and `stop` (whether the rank has been asked to end) outlive this, and are asked from
  // a thread of its own; `say` gets one sentence a stuck call.
  StallWatch(const CommActivity& activity, std::function<bool()> stop,
             std::function<void(const std::string&)> say);
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
  Spoken own_, queue_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool end_ = false;
  std::thread thread_;
};

}  // namespace copus
