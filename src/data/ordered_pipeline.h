// Work done by many threads, its results taken by one in the order of the tasks.
#pragma once
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

namespace copus::detail {

// `produce(task, emit)` runs on any of `threads` threads and may emit any number of results;
// `consume(result)` runs on the caller's thread, task after task, and returns false to stop early.
// Memory is bounded: a task far ahead of the one being consumed waits. An exception of a producer
// reaches the caller when the results before it are consumed, so which one comes first does not
// depend on the threads.
template <class Result>
class OrderedPipeline {
 public:
  using Emit = std::function<void(Result)>;
  using Produce = std::function<void(std::size_t, const Emit&)>;
  using Consume = std::function<bool(Result&&)>;

  static void run(std::size_t tasks, int threads, const Produce& produce, const Consume& consume) {
    OrderedPipeline pipeline(tasks, static_cast<std::size_t>(threads), produce);
    pipeline.consume_all(consume);
  }

 private:
  static constexpr std::size_t kResultsAhead = 4;  // of one task
  struct Stopped {};                               // unwinds a producer nobody waits for
  struct Slot {
    std::deque<Result> results;
    bool done = false;
    std::exception_ptr error;
  };

  OrderedPipeline(std::size_t tasks, std::size_t threads, const Produce& produce)
      : tasks_(tasks), ahead_(2 * threads + 2), produce_(produce) {
    for (std::size_t i = 0; i < threads; ++i) workers_.emplace_back([this] { work(); });
  }
  ~OrderedPipeline() {
    {
      std::lock_guard const lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return stop_ || next_ == tasks_ || next_ < head_ + ahead_; });
      if (stop_ || next_ == tasks_) return;
      std::size_t const task = next_++;
      Slot& slot = slots_[task];
      lock.unlock();
      std::exception_ptr error;
      try {
        produce_(task, [&](Result result) { emit(slot, std::move(result)); });
      } catch (const Stopped&) {
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      slot.error = error;
      slot.done = true;
      changed_.notify_all();
    }
  }

  void emit(Slot& slot, Result result) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stop_ || slot.results.size() < kResultsAhead; });
    if (stop_) throw Stopped{};
    slot.results.push_back(std::move(result));
    changed_.notify_all();
  }

  void consume_all(const Consume& consume) {
    std::unique_lock lock(mutex_);
    while (head_ < tasks_) {
      Slot& slot = slots_[head_];  // a map keeps its elements where they are
      changed_.wait(lock, [&] { return slot.done || !slot.results.empty(); });
      if (!slot.results.empty()) {
        Result result = std::move(slot.results.front());
        slot.results.pop_front();
        changed_.notify_all();
        lock.unlock();
        bool const go_on = consume(std::move(result));
        lock.lock();
        if (!go_on) return;
      } else if (slot.error) {
        std::rethrow_exception(slot.error);
      } else {
        slots_.erase(head_++);
        changed_.notify_all();
      }
    }
  }

  std::size_t tasks_, ahead_, next_ = 0, head_ = 0;
  const Produce& produce_;
  bool stop_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::size_t, Slot> slots_;
  std::vector<std::thread> workers_;
};

}  // namespace copus::detail
