// What the ranks of one thread group share: a board of posted pointers, a barrier, mailboxes, and
// the news of an abort.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "copus/core/tensor.h"

namespace copus {

class ThreadGroup;

// One per world, shared by every group split from it: an abort reaches all of them.
class AbortNews {
 public:
  void enroll(const std::shared_ptr<ThreadGroup>& group);
  void abort(const std::string& reason) noexcept;
  bool aborted() const { return aborted_.load(std::memory_order_acquire); }
  std::string reason() const;

 private:
  mutable std::mutex mutex_;
  std::atomic<bool> aborted_{false};
  std::string reason_;
  std::vector<std::weak_ptr<ThreadGroup>> groups_;
};

// What a rank shows its peers when it enters a collective.
struct Posted {
  const char* operation = "";
  void* data = nullptr;
  const void* input = nullptr;
  std::int64_t bytes = 0;
  std::int64_t argument = 0;  // root, color, ...
  std::int64_t key = 0;
};

// A message waiting for its receiver.
struct Envelope {
  enum class State : std::uint8_t { posted, reading, taken };
  const TensorView* data = nullptr;
  State state = State::posted;
};

class ThreadGroup {
 public:
  ThreadGroup(int size, std::shared_ptr<AbortNews> news);

  int size() const { return size_; }
  const std::shared_ptr<AbortNews>& news() const { return news_; }

  // Shows `mine` and returns when all ranks have shown theirs. Throws CommError when they did not
  // enter the same operation with the same size, or when somebody aborted.
  void enter(int rank, const Posted& mine);
  // Returns when all ranks are done reading each other's buffers. Whoever entered gets here, so an
  // abort does not cut this short: a buffer must not go while a peer still reads it.
  void leave();
  const Posted& of(int rank) const { return posted_[static_cast<std::size_t>(rank)]; }

  void post(int from, int to, Envelope& envelope);
  // The next envelope from `from` to `to`, waited for; `finish` tells its sender that it was read.
  Envelope& next(int from, int to);
  void finish(Envelope& envelope);
  void wait_taken(int from, int to, Envelope& envelope);

  // Groups that a split in progress makes, by the rank that leads each.
  std::vector<std::shared_ptr<ThreadGroup>> born;

  void wake() noexcept;  // by AbortNews
  void check_alive() const {
    if (news_->aborted()) throw_aborted("a wait for peers");
  }

 private:
  enum class OnAbort : std::uint8_t { stop, stay };
  void wait_for_all(const char* where, OnAbort on_abort);
  [[noreturn]] void throw_aborted(const char* where) const;

  int size_;
  std::shared_ptr<AbortNews> news_;
  std::vector<Posted> posted_;
  std::atomic<int> arrived_{0};
  std::atomic<std::uint64_t> generation_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  // By (from, to), made when a first message comes: all pairs of a large world would fill the
  // memory.
  std::map<std::pair<int, int>, std::deque<Envelope*>> boxes_;
};

}  // namespace copus
