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
#include <tuple>
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

// One side of a message. Whichever side comes second moves the bytes.
struct Envelope {
  enum class State : std::uint8_t { posted, moving, over };
  bool outgoing = false;
  int from = 0, to = 0, lane = 0;
  TensorView data;
  std::int64_t other_bytes = 0;  // of the other side, once it is over; nothing moved if they differ
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

  // Shows one side of a message, which stays where it is until it is over or taken back.
  void post(Envelope& mine);
  // Returns when it is over. Where somebody aborts before the other side has come, takes it back
  // and throws.
  void wait_over(Envelope& mine);
  // Takes it back; if it is moving, waits until it is over.
  void take_back(Envelope& mine) noexcept;

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
  std::atomic<std::uint64_t> generation_{0};  // of collectives that came together
  std::mutex mutex_;
  int arrived_ = 0;  // at the next one
  std::condition_variable changed_;
  // Sides that wait for their others, all of them outgoing or none; by (from, to, lane), made when
  // a first message comes: all pairs of a large world would fill the memory.
  std::map<std::tuple<int, int, int>, std::deque<Envelope*>> boxes_;
  std::deque<Envelope*>& box_of(const Envelope& e) { return boxes_[{e.from, e.to, e.lane}]; }
};

}  // namespace copus
