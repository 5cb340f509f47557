#include "copus/plan/noise_trend.h"

#include <cmath>

#include "plan/quantile.h"

namespace copus {
namespace {

constexpr std::size_t kMost = 16, kLeast = 5;

}  // namespace

void note_noise(NoiseTrend& trend, double tokens, double critical_batch, double spacing) {
  if (!(critical_batch > 0.0)) return;
  if (!trend.points.empty() && tokens - trend.points.back().tokens < spacing) return;
  trend.points.push_back({tokens, std::log(critical_batch)});
  if (trend.points.size() > kMost) trend.points.erase(trend.points.begin());
}

double noise_growth(const NoiseTrend& trend, double confidence) {
  if (trend.points.size() < kLeast) return 0.0;
  auto const n = static_cast<double>(trend.points.size());
  double mean_x = 0.0, mean_y = 0.0;
  for (const NoiseTrend::Point& p : trend.points) {
    mean_x += p.tokens / n;
    mean_y += p.log_critical_batch / n;
  }
  double xx = 0.0, xy = 0.0, yy = 0.0;
  for (const NoiseTrend::Point& p : trend.points) {
    double const x = p.tokens - mean_x, y = p.log_critical_batch - mean_y;
    xx += x * x;
    xy += x * y;
    yy += y * y;
  }
  if (!(xx > 0.0)) return 0.0;
  double const slope = xy / xx, degrees = n - 2.0;
  double const error = std::sqrt(std::fmax(0.0, yy - slope * xy) / degrees / xx);
  double const t = detail::student_quantile(detail::normal_quantile(confidence), degrees);
  return std::abs(slope) > t * error ? slope : 0.0;
}

}  // namespace copus
