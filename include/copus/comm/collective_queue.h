// Collectives of one group that run, in order, on a thread of their own while the rank computes.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace copus {

// The ranks of the group submit the same jobs in the same order. A rank that has one submits and
// waits from one thread.
class CollectiveQueue {
 public:
  CollectiveQueue() = default;
  // Waits for what was submitted.
  ~CollectiveQueue();
  CollectiveQueue(const CollectiveQueue&) = delete;
  CollectiveQueue& operator=(const CollectiveQueue&) = delete;

  // The thread starts with the first job. Returns its number, counted from 1.
  std::uint64_t submit(std::function<void()> job);
  // Returns when job number `job` and all before it are done; rethrows, once, what the first that
  // failed has thrown. Jobs submitted behind that one do not run.
  void wait_for(std::uint64_t job);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  std::uint64_t submitted_ = 0, done_ = 0;  // jobs
  bool stop_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace copus
