#include "copus/plan/norm_line.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "gaussian_toy.h"

namespace copus {
namespace {

using namespace toy;

constexpr double kRounding = 1e-12;  // a few operations in double
// Standard errors between a mean and its expectation: exceeded once in 15,000 comparisons.
constexpr double kErrors = 4.0;

NormPoint point(double square, double sequences, double parts) {
  return {square, 1.0 / sequences, parts};
}

}  // namespace

TEST_CASE("two norms give McCandlish's unbiased pair") {
  // |G|^2 = (B |g_B|^2 - b |g_b|^2) / (B - b), tr Sigma = (|g_b|^2 - |g_B|^2) / (1/b - 1/B)
  double const b = 2.0, big = 16.0, small_norm = 5.5, big_norm = 1.75;
  double const signal = (big * big_norm - b * small_norm) / (big - b);
  double const trace = (small_norm - big_norm) / (1.0 / b - 1.0 / big);
  for (const StepNorms& norms :
       {StepNorms{{}, point(small_norm, b, 8.0), point(big_norm, big, 1.0)},
        StepNorms{point(small_norm, b, 1.0), {}, point(big_norm, big, 1.0)},
        StepNorms{point(small_norm, b, 1.0), point(big_norm, big, 1.0), point(big_norm, big, 1.0)},
        StepNorms{point(small_norm, b, 8.0), point(small_norm, b, 8.0),
                  point(big_norm, big, 1.0)}}) {
    auto const fit = fit_line(norms);
    REQUIRE(fit);
    CHECK(fit->signal == Approx(signal).epsilon(kRounding));
    CHECK(fit->trace == Approx(trace).epsilon(kRounding));
    CHECK_FALSE(fit->residual);
  }
}

TEST_CASE("G7: a pair below 0 is left below 0") {
  auto const fit = fit_line({{}, point(1.0, 2.0, 2.0), point(3.0, 4.0, 1.0)});
  REQUIRE(fit);
  CHECK(fit->trace == Approx(-8.0).epsilon(kRounding));
  CHECK(fit->signal == Approx(5.0).epsilon(kRounding));
  auto const other = fit_line({{}, point(9.0, 2.0, 2.0), point(3.0, 4.0, 1.0)});
  CHECK(other->signal == Approx(-3.0).epsilon(kRounding));
}

TEST_CASE("three points on a line give that line and a residual of 0 at every cut") {
  double const signal = 0.25, trace = 40.0;
  for (std::int64_t dp : {2, 3, 8})
    for (std::int64_t accumulation : {2, 5})
      for (std::int64_t micro : {1, 4}) {
        auto const b = static_cast<double>(micro), a = static_cast<double>(accumulation);
        auto const d = static_cast<double>(dp);
        auto const on_line = [&](double sequences, double parts) {
          return point(signal + trace / sequences, sequences, parts);
        };
        auto const fit = fit_line({on_line(b, d), on_line(b * a, d), on_line(b * a * d, 1.0)});
        REQUIRE(fit);
        CHECK(fit->signal == Approx(signal).epsilon(1e-10));  // a difference of numbers near 40
        CHECK(fit->trace == Approx(trace).epsilon(kRounding));
        REQUIRE(fit->residual);
        CHECK(std::abs(*fit->residual) < 1e-10 * trace);
      }
}

TEST_CASE("an estimate exists from two micro-batches in all, a residual from two on each of two") {
  Problem const problem = problem_of(4, 1.0, 10.0);
  for (std::int64_t dp : {1, 2, 3})
    for (std::int64_t accumulation : {1, 2, 3}) {
      Normals normal(7);
      auto const fit = fit_line(draw(problem, equal_cut(dp, accumulation, 2), normal));
      CHECK(fit.has_value() == has_estimate(dp, accumulation));
      CHECK((fit && fit->residual) == has_residual(dp, accumulation));
    }
  CHECK_FALSE(fit_line({}));
  // Points of the same single micro-batch, by whatever name.
  NormPoint const one = point(3.0, 8.0, 1.0);
  CHECK_FALSE(fit_line({one, one, one}));
}

TEST_CASE("G3: norms over any shards, with shared parameters counted once, are the same points") {
  // (dp 2, tp 2, pp 2): each part's vector in four shards; elements 0 and 1 are replicated on both
  // tp ranks of the first stage.
  Normals normal(11);
  std::vector<std::int64_t> const tokens{96, 40};
  PointSums uncut, cut;
  for (std::int64_t n : tokens) {
    Vector g(10);
    for (double& x : g) x = 100.0 * normal();
    uncut += sums_of(right_count(g), n, kLength, true);
    std::vector<Vector> const shards{
        {g[0], g[1], g[2], g[3]}, {g[4], g[5]}, {g[6], g[7]}, {g[8], g[9]}};
    for (std::size_t shard = 0; shard < shards.size(); ++shard)
      cut += sums_of(right_count(shards[shard]), n, kLength, shard == 0);
  }
  NormPoint const expected = point_of(uncut), point = point_of(cut);
  CHECK(point.square == Approx(expected.square).epsilon(kRounding));
  CHECK(point.inverse == Approx((32.0 / 96.0 + 32.0 / 40.0) / 2.0).epsilon(kRounding));
  CHECK(expected.inverse == point.inverse);
  CHECK(point.parts == 2.0);
}

TEST_CASE("G6: the raw pair is unbiased however a batch is cut into ranks and micro-batches") {
  Problem const problem = problem_of(8, 0.5, 24.0);
  struct Shape {
    std::int64_t dp, accumulation, micro;
  };
  for (Shape const s : {Shape{2, 1, 8}, {1, 4, 4}, {2, 4, 2}, {4, 2, 2}, {8, 2, 1}}) {
    Normals normal(21);
    Sample signal, trace, residual;
    for (int step = 0; step < 4000; ++step) {
      auto const fit = fit_line(draw(problem, equal_cut(s.dp, s.accumulation, s.micro), normal));
      REQUIRE(fit);
      signal.add(fit->signal);
      trace.add(fit->trace);
      if (fit->residual) residual.add(*fit->residual);
    }
    INFO("dp " << s.dp << ", accumulation " << s.accumulation << ", micro " << s.micro);
    CHECK(std::abs(signal.mean() - problem.signal()) < kErrors * signal.error());
    CHECK(std::abs(trace.mean() - problem.trace()) < kErrors * trace.error());
    // So that the lines above say something: 4,000 steps know the trace to a few percent.
    CHECK(trace.error() < 0.02 * problem.trace());
    if (has_residual(s.dp, s.accumulation))
      CHECK(std::abs(residual.mean()) < kErrors * residual.error());
  }
}

TEST_CASE("unequal token counts leave the raw pair unbiased") {
  Problem const problem = problem_of(8, 0.5, 24.0);
  Normals normal(22);
  Sample signal, trace, residual, mean_batch;
  for (int step = 0; step < 6000; ++step) {
    Cut cut{3, 3, {}};
    for (int part = 0; part < 9; ++part)
      cut.tokens.push_back(normal.between(0, 3) == 0 ? 4 * kLength : normal.between(2, 20));
    StepNorms norms = draw(problem, cut, normal);
    auto const fit = fit_line(norms);
    REQUIRE(fit);
    signal.add(fit->signal);
    trace.add(fit->trace);
    residual.add(*fit->residual);
    // 1 / mean(b) for mean(1/b), the mistake that equal counts hide.
    norms.local.inverse = 3.0 * norms.whole.inverse;
    norms.first = {};
    mean_batch.add(fit_line(norms)->trace);
  }
  CHECK(std::abs(signal.mean() - problem.signal()) < kErrors * signal.error());
  CHECK(std::abs(trace.mean() - problem.trace()) < kErrors * trace.error());
  CHECK(std::abs(residual.mean()) < kErrors * residual.error());
  CHECK(mean_batch.mean() - problem.trace() > 10.0 * mean_batch.error());
}

TEST_CASE("a part without loss-bearing tokens leaves the averages and the fit unbiased") {
  Problem const problem = problem_of(8, 0.5, 24.0);
  Normals normal(23);
  CHECK(sums_of(0.0, 0, kLength, true).parts == 0.0);
  // The second rank's first micro-batch is empty; the third rank has nothing at all.
  Cut const cut{3, 2, {kLength / 4, 2 * kLength, 0, kLength / 2, 0, 0}};
  StepNorms const norms = draw(problem, cut, normal);
  CHECK(norms.first.parts == 1.0);
  CHECK(norms.local.parts == 2.0);
  Sample signal, trace;
  for (int step = 0; step < 4000; ++step) {
    auto const fit = fit_line(draw(problem, cut, normal));
    REQUIRE(fit);
    CHECK_FALSE(fit->residual);
    signal.add(fit->signal);
    trace.add(fit->trace);
  }
  CHECK(std::abs(signal.mean() - problem.signal()) < kErrors * signal.error());
  CHECK(std::abs(trace.mean() - problem.trace()) < kErrors * trace.error());
}

TEST_CASE("in pure noise the fit's variances and the residual's are those it states") {
  // Without a mean gradient the variances of norm_line.h are exact for Gaussian gradients. A
  // variance of n numbers of kurtosis K has relative error sqrt((K - 1) / n), a covariance at most
  // about as much over its correlation; K is near 3 + 12/32.
  std::size_t const dims = 32;
  Problem const problem = problem_of(dims, 0.0, 32.0);
  double const unit = 2.0 * static_cast<double>(dims);  // 2 tr(Sigma^2), Sigma = 1
  int const steps = 8000;
  double const allowed = kErrors * std::sqrt(2.5 / steps);
  struct Shape {
    std::int64_t dp, accumulation, micro;
  };
  for (Shape const s : {Shape{2, 2, 1}, {2, 6, 1}, {3, 2, 2}, {1, 4, 1}, {4, 1, 1}}) {
    Normals normal(24);
    Sample signal, trace, residual, sum;
    LineFit stated;
    for (int step = 0; step < steps; ++step) {
      auto const fit = fit_line(draw(problem, equal_cut(s.dp, s.accumulation, s.micro), normal));
      REQUIRE(fit);
      stated = *fit;
      signal.add(fit->signal);
      trace.add(fit->trace);
      sum.add(fit->trace + 10.0 * fit->signal);
      if (fit->residual) residual.add(*fit->residual);
    }
    INFO("dp " << s.dp << ", accumulation " << s.accumulation << ", micro " << s.micro);
    CHECK(signal.variance() == Approx(unit * stated.signal_variance).epsilon(allowed));
    CHECK(trace.variance() == Approx(unit * stated.trace_variance).epsilon(allowed));
    double const of_sum =
        stated.trace_variance + 100.0 * stated.signal_variance + 20.0 * stated.covariance;
    CHECK(sum.variance() == Approx(unit * of_sum).epsilon(allowed));
    if (stated.residual) CHECK(residual.variance() == Approx(unit).epsilon(allowed));
  }
}

TEST_CASE("three points know the trace better than any two of them") {
  Problem const problem = problem_of(16, 0.1, 16.0);
  Normals normal(25);
  Sample all, first_and_local, local_and_whole, first_and_whole;
  int const steps = 8000;
  for (int step = 0; step < steps; ++step) {
    StepNorms const norms = draw(problem, equal_cut(2, 4, 1), normal);
    all.add(fit_line(norms)->trace);
    local_and_whole.add(fit_line({{}, norms.local, norms.whole})->trace);
    first_and_whole.add(fit_line({norms.first, {}, norms.whole})->trace);
    first_and_local.add((norms.first.square - norms.local.square) /
                        (norms.first.inverse - norms.local.inverse));
  }
  // norm_line.h: in units of 2 tr(Sigma^2), 1 / (6/5 + 1) against 5/6 and 1; from (a) and (c) alone
  // ((1/2 - 1/64) / (7/8)^2). The measured ratios have an error of 2 or 3 percent.
  CHECK(all.variance() / first_and_local.variance() == Approx(6.0 / 11.0).epsilon(0.15));
  CHECK(all.variance() / local_and_whole.variance() == Approx(5.0 / 11.0).epsilon(0.15));
  CHECK(all.variance() < 0.9 * first_and_whole.variance());
}

}  // namespace copus
