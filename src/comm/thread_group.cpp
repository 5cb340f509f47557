#include "comm/thread_group.h"

#include <fmt/format.h>

#include <cstring>
#include <thread>

#include "copus/core/error.h"

namespace copus {

void AbortNews::enroll(const std::shared_ptr<ThreadGroup>& group) {
  std::lock_guard const lock(mutex_);
  std::erase_if(groups_, [](const std::weak_ptr<ThreadGroup>& g) { return g.expired(); });
  groups_.push_back(group);
}

void AbortNews::abort(const std::string& reason) noexcept {
  std::vector<std::shared_ptr<ThreadGroup>> alive;
  {
    std::lock_guard const lock(mutex_);
    if (!aborted_.load()) reason_ = reason;
    // Marked for all groups before any of them wakes: nobody can start to wait in another one
    // afterwards.
    aborted_.store(true, std::memory_order_release);
    for (const std::weak_ptr<ThreadGroup>& group : groups_) {
      if (auto strong = group.lock()) alive.push_back(std::move(strong));
    }
  }
  for (const std::shared_ptr<ThreadGroup>& group : alive) group->wake();
}

std::string AbortNews::reason() const {
  std::lock_guard const lock(mutex_);
  return reason_;
}

ThreadGroup::ThreadGroup(int size, std::shared_ptr<AbortNews> news)
    : born(static_cast<std::size_t>(size)),
      size_(size),
      news_(std::move(news)),
      posted_(static_cast<std::size_t>(size)) {}

void ThreadGroup::wake() noexcept {
  std::lock_guard const lock(mutex_);
  changed_.notify_all();
}

void ThreadGroup::throw_aborted(const char* where) const {
  throw CommError(fmt::format("stopped in {}: {}", where, news_->reason()));
}

// A collective comes together for all of its ranks or for none: whoever would stop for an abort
// counts, or takes its count back, under the lock that completes it.
void ThreadGroup::wait_for_all(const char* where, OnAbort on_abort) {
  std::unique_lock lock(mutex_);
  if (on_abort == OnAbort::stop && news_->aborted()) throw_aborted(where);
  std::uint64_t const now = generation_.load(std::memory_order_relaxed);
  if (++arrived_ == size_) {
    arrived_ = 0;
    generation_.store(now + 1, std::memory_order_release);
    lock.unlock();
    changed_.notify_all();
    return;
  }
  lock.unlock();
  auto const complete = [&] { return generation_.load(std::memory_order_acquire) != now; };
  auto const stopped = [&] { return on_abort == OnAbort::stop && news_->aborted(); };
  // A short spin catches peers that run beside us; then the core is theirs.
  for (int i = 0; i < 200 && !complete() && !stopped(); ++i) std::this_thread::yield();
  if (complete()) return;
  lock.lock();
  changed_.wait(lock, [&] { return complete() || stopped(); });
  if (complete()) return;
  --arrived_;
  throw_aborted(where);
}

void ThreadGroup::enter(int rank, const Posted& mine) {
  // Peers of a collective that has failed may still be reading what this rank posted in it.
  if (news_->aborted()) throw_aborted(mine.operation);
  posted_[static_cast<std::size_t>(rank)] = mine;
  wait_for_all(mine.operation, OnAbort::stop);
  for (int r = 0; r < size_; ++r) {
    const Posted& other = of(r);
    bool const same =
        std::strcmp(other.operation, mine.operation) == 0 && other.bytes == mine.bytes;
    if (!same) {
      std::string const text = fmt::format(
          "ranks {} and {} of a group of {} entered different collectives: {} of {} bytes and {} "
          "of {}",
          rank, r, size_, mine.operation, mine.bytes, other.operation, other.bytes);
      news_->abort(text);
      throw CommError(text);
    }
  }
}

void ThreadGroup::leave() {
  wait_for_all("leave", OnAbort::stay);
}

void ThreadGroup::post(Envelope& mine) {
  Envelope* other = nullptr;
  {
    std::lock_guard const lock(mutex_);
    std::deque<Envelope*>& box = box_of(mine);
    if (box.empty() || box.front()->outgoing == mine.outgoing) {
      box.push_back(&mine);
      return;
    }
    other = box.front();
    box.pop_front();
    other->state = mine.state = Envelope::State::moving;
  }
  std::int64_t const bytes = mine.data.bytes();
  // An empty tensor may have no address.
  if (bytes > 0 && bytes == other->data.bytes()) {
    const Envelope& source = mine.outgoing ? mine : *other;
    const Envelope& target = mine.outgoing ? *other : mine;
    std::memcpy(target.data.data, source.data.data, static_cast<std::size_t>(bytes));
  }
  {
    std::lock_guard const lock(mutex_);
    mine.other_bytes = other->data.bytes();
    other->other_bytes = bytes;
    other->state = mine.state = Envelope::State::over;
  }
  changed_.notify_all();
}

void ThreadGroup::wait_over(Envelope& mine) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] {
    return mine.state == Envelope::State::over ||
           (mine.state == Envelope::State::posted && news_->aborted());
  });
  if (mine.state == Envelope::State::over) return;
  std::erase(box_of(mine), &mine);
  mine.state = Envelope::State::over;
  throw_aborted("exchange");
}

void ThreadGroup::take_back(Envelope& mine) noexcept {
  std::unique_lock lock(mutex_);
  if (mine.state == Envelope::State::posted) {
    std::erase(boxes_.find({mine.from, mine.to, mine.lane})->second, &mine);
    mine.state = Envelope::State::over;
  }
  changed_.wait(lock, [&] { return mine.state == Envelope::State::over; });
}

}  // namespace copus
