// Gradients whose noise scale is known: sequence gradients are N(G, Sigma) with diagonal Sigma, cut
// into micro-batches and ranks, with the norms that a trainer would take of them.
#pragma once
#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "copus/plan/norm_line.h"

namespace copus::toy {

inline constexpr std::int64_t kLength = 32;  // T

// Standard normals by Marsaglia's polar method: the same on every standard library, and fast.
class Normals {
 public:
  explicit Normals(std::uint64_t seed) : engine_(seed) {}
  double operator()() {
    if (has_spare_) {
      has_spare_ = false;
      return spare_;
    }
    double x = 0.0, y = 0.0, square = 0.0;
    do {
      x = uniform();
      y = uniform();
      square = x * x + y * y;
    } while (square >= 1.0 || square == 0.0);
    double const scale = std::sqrt(-2.0 * std::log(square) / square);
    spare_ = y * scale;
    has_spare_ = true;
    return x * scale;
  }
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(high - low + 1));
  }

 private:
  double uniform() { return static_cast<double>(engine_() >> 11) * 0x1p-52 - 1.0; }  // [-1, 1)
  std::mt19937_64 engine_;
  double spare_ = 0.0;
  bool has_spare_ = false;
};

// How a step is cut: loss-bearing tokens of each micro-batch, (dp, accumulation).
struct Cut {
  std::int64_t dp = 1, accumulation = 1;
  std::vector<std::int64_t> tokens;

  double batch() const {
    double sum = 0.0;
    for (std::int64_t n : tokens) sum += static_cast<double>(n);
    return sum / static_cast<double>(kLength);
  }
};
inline Cut equal_cut(std::int64_t dp, std::int64_t accumulation, std::int64_t micro) {
  return {dp, accumulation,
          std::vector<std::int64_t>(static_cast<std::size_t>(dp * accumulation), micro * kLength)};
}

using Vector = std::vector<double>;
// The squared norm as somebody counts it.
using Count = std::function<double(const Vector&)>;
inline double right_count(const Vector& g) {
  double sum = 0.0;
  for (double x : g) sum += x * x;
  return sum;
}
// Elements [0, share) counted `times` times.
inline Count wrong_count(std::size_t share, double times) {
  return [=](const Vector& g) {
    double sum = right_count(g);
    for (std::size_t i = 0; i < share; ++i) sum += (times - 1.0) * g[i] * g[i];
    return sum;
  };
}
struct Counts {
  Count first = right_count, local = right_count, whole = right_count;
};

struct Problem {
  Vector mean, deviation;  // G, and the root of Sigma's diagonal
  double signal() const { return right_count(mean); }
  double trace() const { return right_count(deviation); }
  double phi() const { return trace() / signal(); }
};
// `dims` equal dimensions with the given |G|^2 and tr Sigma.
inline Problem problem_of(std::size_t dims, double signal, double trace) {
  auto const n = static_cast<double>(dims);
  return {Vector(dims, std::sqrt(signal / n)), Vector(dims, std::sqrt(trace / n))};
}

// Draws one step and takes its norms. Tokens are independent: a micro-batch of n of them has the
// sum gradient N(n G, n T Sigma).
inline StepNorms draw(const Problem& problem, const Cut& cut, Normals& normal,
                      const Counts& counts = {}) {
  std::size_t const dims = problem.mean.size();
  PointSums first, local, whole;
  Vector step(dims, 0.0), rank(dims), micro(dims);
  std::int64_t step_tokens = 0, next = 0;
  for (std::int64_t d = 0; d < cut.dp; ++d) {
    std::fill(rank.begin(), rank.end(), 0.0);
    std::int64_t rank_tokens = 0;
    for (std::int64_t k = 0; k < cut.accumulation; ++k) {
      std::int64_t const tokens = cut.tokens[static_cast<std::size_t>(next++)];
      auto const n = static_cast<double>(tokens);
      double const spread = std::sqrt(n * static_cast<double>(kLength));
      for (std::size_t i = 0; i < dims; ++i)
        rank[i] += n * problem.mean[i] + spread * problem.deviation[i] * normal();
      rank_tokens += tokens;
      if (k == 0 && cut.accumulation > 1)
        first += sums_of(counts.first(rank), tokens, kLength, true);
    }
    for (std::size_t i = 0; i < dims; ++i) step[i] += rank[i];
    step_tokens += rank_tokens;
    if (cut.dp > 1) local += sums_of(counts.local(rank), rank_tokens, kLength, true);
  }
  whole = sums_of(counts.whole(step), step_tokens, kLength, true);
  return {point_of(first), point_of(local), point_of(whole)};
}

// Mean, its standard error and the variance of numbers seen one by one.
class Sample {
 public:
  void add(double x) {
    n_ += 1.0;
    double const off = x - mean_;
    mean_ += off / n_;
    squares_ += off * (x - mean_);
  }
  double mean() const { return mean_; }
  double variance() const { return squares_ / (n_ - 1.0); }
  double error() const { return std::sqrt(variance() / n_); }

 private:
  double n_ = 0.0, mean_ = 0.0, squares_ = 0.0;
};

}  // namespace copus::toy
