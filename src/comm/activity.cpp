#include "copus/comm/activity.h"

#include <fmt/format.h>

namespace copus {

std::optional<CallRecord::Call> CallRecord::current() const {
  std::int64_t const number = calls_.load(std::memory_order_acquire);
  if (!inside_.load(std::memory_order_acquire)) return {};
  Call call;
  call.number = number;
  call.words = fmt::format("{} over {} (call {})", operation_.load(std::memory_order_relaxed),
                           group_.load(std::memory_order_relaxed), number);
  call.seconds = static_cast<double>(now() - since_.load(std::memory_order_relaxed)) * 1e-9;
  // Another call meanwhile: this one did not hang.
  if (calls_.load(std::memory_order_acquire) != number) return {};
  return call;
}

}  // namespace copus
