#include "copus/comm/collective_queue.h"

#include <utility>

namespace copus {

CollectiveQueue::~CollectiveQueue() {
  {
    std::lock_guard const lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

std::uint64_t CollectiveQueue::submit(std::function<void()> job) {
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  std::uint64_t number = 0;
  {
    std::lock_guard const lock(mutex_);
    if (failure_) return submitted_;  // whoever waits will be told
    jobs_.push_back(std::move(job));
    number = ++submitted_;
  }
  changed_.notify_all();
  return number;
}

void CollectiveQueue::wait_for(std::uint64_t job) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_ >= job; });
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void CollectiveQueue::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stop_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    std::function<void()> const job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    std::exception_ptr failure;
    try {
      job();
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    ++done_;
    if (failure) {
      failure_ = failure;
      jobs_.clear();
      done_ = submitted_;
    }
    changed_.notify_all();
  }
}

}  // namespace copus
