#include "copus/train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace copus {
namespace {

double ratio(std::int64_t part, std::int64_t whole) {
  return whole <= 0 ? 1.0
                    : std::clamp(static_cast<double>(part) / static_cast<double>(whole), 0.0, 1.0);
}

}  // namespace

double learning_rate(const OptimizerConfig& optimizer, const ScheduleConfig& schedule,
                     std::int64_t total_tokens, std::int64_t tokens) {
  double const peak = optimizer.lr, floor = peak * schedule.min_lr_ratio;
  if (tokens < schedule.warmup_tokens) return peak * ratio(tokens, schedule.warmup_tokens);
  switch (schedule.kind) {
    case ScheduleKind::constant:
      return peak;
    case ScheduleKind::cosine: {
      std::int64_t const end = schedule.decay_tokens > 0 ? schedule.decay_tokens : total_tokens;
      double const done = ratio(tokens - schedule.warmup_tokens, end - schedule.warmup_tokens);
      return floor + (peak - floor) * 0.5 * (1.0 + std::cos(std::numbers::pi * done));
    }
    case ScheduleKind::wsd: {
      std::int64_t const start = total_tokens - schedule.decay_tokens;
      return tokens < start
                 ? peak
                 : floor + (peak - floor) * (1.0 - ratio(tokens - start, schedule.decay_tokens));
    }
  }
  return peak;
}

}  // namespace copus
