#include "config_names.h"

#include <algorithm>
#include <string>
#include <vector>

#include "copus/core/config_io.h"

namespace copus {

std::string_view name_of(Family family) {
  return detail::word_of(family);
}
std::string_view name_of(RopeKind kind) {
  return detail::word_of(kind);
}
std::string_view name_of(ScheduleKind kind) {
  return detail::word_of(kind);
}
std::string_view name_of(LrRule rule) {
  return detail::word_of(rule);
}
std::string_view name_of(BetaRule rule) {
  return detail::word_of(rule);
}
std::string_view name_of(DecayRule rule) {
  return detail::word_of(rule);
}
std::string_view name_of(Precision precision) {
  return detail::word_of(precision);
}
std::string_view name_of(Recompute recompute) {
  return detail::word_of(recompute);
}
std::string_view name_of(AdaptMode mode) {
  return detail::word_of(mode);
}
std::string_view name_of(Objective objective) {
  return detail::word_of(objective);
}
std::string_view name_of(DeviceChoice device) {
  return detail::word_of(device);
}
std::string_view name_of(TransportChoice transport) {
  return detail::word_of(transport);
}

namespace {

// Optimal string alignment distance: insert, delete, replace, or swap two neighbours, each at 1.
std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      std::size_t const replace = d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, replace});
      bool const swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

std::string nearest_name(const std::string& word, const std::vector<std::string>& candidates) {
  // Two slips, or a third of a long word; one in a word so short that two would fit anything.
  std::size_t best = std::max<std::size_t>(word.size() > 3 ? 2 : 1, word.size() / 3) + 1;
  std::string nearest;
  for (const std::string& candidate : candidates) {
    std::size_t const distance = edit_distance(word, candidate);
    if (distance < best) {
      best = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

}  // namespace copus
