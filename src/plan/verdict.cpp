#include "copus/plan/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace copus {
namespace {

// Of neighbours' sides of the median, in time; never below 0.
double side_correlation(std::span<const double> rates, double median) {
  if (rates.size() < 2) return 0.0;
  double sum = 0.0;
  for (std::size_t i = 1; i < rates.size(); ++i) {
    bool const same = (rates[i] > median) == (rates[i - 1] > median);
    sum += same ? 1.0 : -1.0;
  }
  // Sides that are split evenly agree a little less than by chance.
  auto const n = static_cast<double>(rates.size());
  return std::clamp(sum / (n - 1.0) + 1.0 / n, 0.0, 0.95);
}

double median_of(const std::vector<double>& sorted) {
  std::size_t const half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : 0.5 * (sorted[half - 1] + sorted[half]);
}

}  // namespace

Speed speed_of(std::span<const double> rates) {
  Speed out;
  out.steps = static_cast<std::int64_t>(rates.size());
  if (rates.empty()) return out;
  std::vector<double> sorted(rates.begin(), rates.end());
  std::sort(sorted.begin(), sorted.end());
  out.median = median_of(sorted);
  constexpr double kDeviations = 2.75;
  double const r = side_correlation(rates, out.median), n = static_cast<double>(rates.size());
  double const spread = kDeviations * 0.5 * std::sqrt(n * (1.0 + r) / (1.0 - r));
  auto const rank = static_cast<std::ptrdiff_t>(std::lround(0.5 * n - spread));  // from 1
  if (rank < 1) return out;
  auto const at = static_cast<std::size_t>(rank - 1);
  out.low = sorted[at];
  out.high = sorted[sorted.size() - 1 - at];
  return out;
}

Verdict verify(const Decision& decision, const Speed& before, const Speed& after, bool last) {
  Speed was = before;
  if (was.steps == 0) {
    was.median = was.low = was.high = decision.current_speed;
  }
  Verdict out;
  out.before = was;
  out.after = after;
  out.predicted_speed = was.median * decision.predicted_speed / decision.current_speed;
  double const enough = out.predicted_speed * (1.0 - decision.error);
  // Goodput is proportional to speed at a given batch and noise scale.
  double const worth_then = decision.current / decision.current_speed;
  double const worth_now = decision.predicted / decision.predicted_speed;
  double const gain = decision.predicted / decision.current - 1.0;
  bool const worse = after.high * worth_now < was.low * worth_then;
  bool const better = after.low * worth_now > was.high * worth_then;
  std::string const what = fmt::format(
      "{:.4g} tokens/s over {} steps ({:.4g} to {:.4g}), {:.4g} predicted ({:+.1f} %, {:.1f} % "
      "expected error), {:.4g} before ({:.4g} to {:.4g})",
      after.median, after.steps, after.low, after.high, out.predicted_speed,
      100.0 * (after.median / out.predicted_speed - 1.0), 100.0 * decision.error, was.median,
      was.low, was.high);
  if (worse && after.high < enough) {
    out.ruling = Ruling::roll_back;
    out.reason = "rolled back: worth less than before, and not by noise: " + what;
  } else if (after.low >= enough) {
    out.reason = "kept, as predicted: " + what;
  } else if (better) {
    out.reason = "kept, better than before: " + what;
  } else if (after.error() + was.error() < gain) {
    out.reason = "kept: " + what;
  } else if (last) {
    out.reason = "kept, for noise hides what it brought: " + what;
  } else {
    out.ruling = Ruling::wait;
    out.reason = "waits for more steps: " + what;
  }
  return out;
}

}  // namespace copus
