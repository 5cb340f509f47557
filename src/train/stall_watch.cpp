#include "train/stall_watch.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "copus/core/units.h"

namespace copus {
namespace {

constexpr auto kLook = std::chrono::milliseconds(100);

}  // namespace

StallWatch::StallWatch(const CommActivity& activity, std::function<bool()> stop,
                       std::function<void(const std::string&)> say, StallLimits limits)
    : activity_(activity),
      stop_(std::move(stop)),
      say_(std::move(say)),
      limits_(limits),
      thread_([this] { run(); }) {}

StallWatch::~StallWatch() {
  {
    std::lock_guard const lock(mutex_);
    end_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void StallWatch::run() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kLook, [&] { return end_; })) {
    look(activity_.own, own_);
    look(activity_.queue, queue_);
  }
}

void StallWatch::look(const CallRecord& record, Spoken& spoken) {
  std::optional<CallRecord::Call> const call = record.current();
  if (!call) return;
  bool const stopping = stop_ && stop_();
  std::string const phase = activity_.phase.load();
  double const limit = stopping        ? limits_.stopping
                       : phase.empty() ? limits_.training
                                       : limits_.phase;
  if (call->seconds < limit) return;
  if (spoken.number == call->number && (spoken.of_stop || !stopping)) return;
  spoken = {call->number, stopping};
  say_(fmt::format("{}in {} for {}{}{}: a peer has not come, or has ended",
                   stopping ? "asked to stop, " : "", call->words, human_duration(call->seconds),
                   phase.empty() ? "" : ", while ", phase));
}

}  // namespace copus
