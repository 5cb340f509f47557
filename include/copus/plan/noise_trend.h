// How fast the noise scale grows, from its readings along the run.
#pragma once
#include <vector>

namespace copus {

// Readings so far apart that they share little of what was averaged; the latest few.
struct NoiseTrend {
  struct Point {
    double tokens = 0.0, log_critical_batch = 0.0;
    bool operator==(const Point&) const = default;
  };
  std::vector<Point> points;
  bool operator==(const NoiseTrend&) const = default;
};

// Taken when `spacing` tokens (the averages' half-life) have passed since the last one.
void note_noise(NoiseTrend& trend, double tokens, double critical_batch, double spacing);

// d log(critical batch) / d token by least squares; 0 unless its interval at `confidence`
// (Student's t over the residuals) excludes 0, and with fewer than five points.
double noise_growth(const NoiseTrend& trend, double confidence);

}  // namespace copus
