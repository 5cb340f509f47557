#include "data/mixture.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "copus/core/error.h"

namespace copus::detail {
namespace {

constexpr std::int64_t kMaxPeriod = std::int64_t{1} << 20;

// Shares of `period` slots, each at least one and together all of them.
std::vector<std::int64_t> rounded(const std::vector<double>& shares, std::int64_t period) {
  std::vector<std::int64_t> counts;
  for (double const share : shares) {
    counts.push_back(std::max<std::int64_t>(
        1, static_cast<std::int64_t>(std::llround(share * static_cast<double>(period)))));
  }
  std::int64_t const sum = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  *std::max_element(counts.begin(), counts.end()) += period - sum;
  return counts;
}

// The shortest period that gives every source its share exactly (to the precision of a weight
// written in decimal), else the longest.
std::vector<std::int64_t> counts_of(const std::vector<double>& shares) {
  auto const fits = [&](std::int64_t period) {
    return std::all_of(shares.begin(), shares.end(), [&](double share) {
      double const slots = share * static_cast<double>(period);
      return std::round(slots) >= 1.0 && std::abs(slots - std::round(slots)) < 1e-9 * slots;
    });
  };
  std::int64_t period = static_cast<std::int64_t>(shares.size());
  while (period < kMaxPeriod && !fits(period)) ++period;
  return rounded(shares, period);
}

}  // namespace

Mixture::Mixture(const std::vector<double>& weights) {
  double const sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<double> shares;
  for (double const weight : weights) {
    COPUS_CHECK(weight > 0 && std::isfinite(weight / sum), "weights are positive");
    shares.push_back(weight / sum);
  }
  counts_ = counts_of(shares);
  std::int64_t const period = std::accumulate(counts_.begin(), counts_.end(), std::int64_t{0});
  auto const sources = static_cast<std::int64_t>(counts_.size());
  std::vector<std::int64_t> drawn(counts_.size(), 0);
  slots_.reserve(static_cast<std::size_t>(period));
  COPUS_CHECK(sources >= 2, "a mixture has two sources or more");
  for (std::int64_t n = 1; n <= period; ++n) {
    // Among the sources that are owed at least 1/(2S - 2) of a sample (deficit n share - drawn,
    // here times the period), the one that would be the first to be owed too much.
    std::size_t best = counts_.size();
    double best_slack = 0;
    for (std::size_t s = 0; s < counts_.size(); ++s) {
      std::int64_t const deficit = n * counts_[s] - drawn[s] * period;
      if (deficit * (2 * sources - 2) < period) continue;
      double const slack =
          static_cast<double>((2 * sources - 3) * period - (2 * sources - 2) * deficit) /
          static_cast<double>(counts_[s]);
      if (best == counts_.size() || slack < best_slack) {
        best = s;
        best_slack = slack;
      }
    }
    COPUS_CHECK(best < counts_.size(), "some source is owed a sample");
    slots_.push_back({static_cast<std::uint32_t>(best), static_cast<std::uint32_t>(drawn[best])});
    ++drawn[best];
  }
}

Draw Mixture::operator()(std::int64_t sample) const {
  const Slot& slot = slots_[static_cast<std::size_t>(sample % period())];
  return {slot.source, sample / period() * counts_[slot.source] + slot.before};
}

}  // namespace copus::detail
