#include "copus/core/units.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace copus {

std::string human_count(double n) {
  constexpr std::array<const char*, 5> kSuffix{"", "K", "M", "B", "T"};
  std::size_t i = 0;
  while (std::abs(n) >= 999.5 && i + 1 < kSuffix.size()) {
    n /= 1000.0;
    ++i;
  }
  if (i == 0 && n == std::floor(n)) return fmt::format("{:.0f}", n);
  return fmt::format("{:.{}f}{}", n, std::abs(n) < 9.995 ? 2 : (std::abs(n) < 99.95 ? 1 : 0),
                     kSuffix[i]);
}

std::string human_bytes(double bytes) {
  constexpr std::array<const char*, 5> kSuffix{"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t i = 0;
  while (std::abs(bytes) >= 1023.5 && i + 1 < kSuffix.size()) {
    bytes /= 1024.0;
    ++i;
  }
  return fmt::format("{:.{}f} {}", bytes,
                     i == 0 ? 0 : (bytes < 9.995 ? 2 : (bytes < 99.95 ? 1 : 0)), kSuffix[i]);
}

std::string human_duration(double seconds) {
  if (!(seconds >= 0.0) || seconds > 1e10) return "?";
  if (seconds < 9.95) return fmt::format("{:.1f}s", seconds);
  auto const whole = static_cast<std::int64_t>(std::llround(seconds));
  std::int64_t const days = whole / 86400, hours = whole / 3600 % 24, minutes = whole / 60 % 60,
                     rest = whole % 60;
  if (days > 0) return fmt::format("{}d {:02}h", days, hours);
  if (hours > 0) return fmt::format("{}h {:02}m", hours, minutes);
  if (minutes > 0) return fmt::format("{}m {:02}s", minutes, rest);
  return fmt::format("{}s", rest);
}

}  // namespace copus
