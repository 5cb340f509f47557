#include "copus/core/math.h"

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

namespace copus {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr double kEps = 0x1p-24;  // half an ulp of float, relative

// The distance of `value` from `exact` in units in the last place of a float near `exact`.
double ulps(float value, double exact) {
  double const unit = std::ldexp(1.0, std::max(std::ilogb(exact), -126) - 23);
  return std::abs(static_cast<double>(value) - exact) / unit;
}

double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}
double gelu(double x) {
  return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
}
double silu(double x) {
  return x * sigmoid(x);
}
template <class F>
double slope(F f, double x) {  // central difference: error h^2 f'''/6, below 1e-9 here
  double const h = 1e-5;
  return (f(x + h) - f(x - h)) / (2.0 * h);
}

std::vector<float> grid(float limit, int points) {
  std::vector<float> xs;
  for (int i = -points; i <= points; ++i) {
    xs.push_back(limit * static_cast<float>(i) / static_cast<float>(points));
  }
  return xs;
}

TEST_CASE("exp is within 2 ulp of the exact value over its whole range") {
  double worst = 0;
  for (float x = -86.9f; x < 88.72f; x += 1.37e-5f * (1.0f + std::abs(x) * 0.1f)) {
    double const exact = std::exp(static_cast<double>(x));
    worst = std::max(worst, ulps(math::exp(x), exact));
  }
  for (int power = -40; power < 0;
       ++power) {  // arguments around zero, where steps above are coarse
    for (float const sign : {-1.0f, 1.0f}) {
      float const x = sign * std::ldexp(1.37f, power);
      worst = std::max(worst, ulps(math::exp(x), std::exp(static_cast<double>(x))));
    }
  }
  CHECK(worst <= 2.0);
}

TEST_CASE("exp reaches its limits and keeps a NaN") {
  CHECK(math::exp(0.0f) == 1.0f);
  CHECK(math::exp(-kInf) == 0.0f);
  CHECK(math::exp(-1e30f) == 0.0f);
  CHECK(math::exp(-87.0f) == 0.0f);
  CHECK(math::exp(-86.8f) > 0.0f);
  CHECK(math::exp(kInf) == kInf);
  CHECK(math::exp(1e30f) == kInf);
  CHECK(math::exp(88.8f) == kInf);
  CHECK(std::isfinite(math::exp(88.7f)));
  CHECK(std::isnan(math::exp(kNan)));
  CHECK(std::isnan(math::exp(-kNan)));
}

TEST_CASE("exp never falls where its argument rises") {
  float last = 0.0f;
  bool rising = true;
  for (float x = -20.0f; x < 20.0f; x += 1e-4f) {
    float const value = math::exp(x);
    // Two values within 2 ulp each may swap places by at most 4 ulp.
    rising = rising && value >= last * (1.0f - 8.0f * static_cast<float>(kEps));
    last = value;
  }
  CHECK(rising);
}

TEST_CASE("sigmoid agrees with its double formula and saturates without a NaN") {
  for (float const x : grid(80.0f, 20000)) {
    double const exact = sigmoid(static_cast<double>(x));
    INFO("x = " << x);
    // exp 2 ulp (4 eps), the sum and the quotient half an ulp (1 eps) each.
    REQUIRE(std::abs(math::sigmoid(x) - exact) <= 6.0 * kEps * exact);
  }
  CHECK(math::sigmoid(kInf) == 1.0f);
  CHECK(math::sigmoid(-kInf) == 0.0f);
  CHECK(std::isnan(math::sigmoid(kNan)));
}

// An argument u of sigmoid with a relative error of k eps moves it by |u| k eps s (1 - s), which is
// below |u| e^-|u| k eps in absolute terms and |u| k eps relatively.
double activation_bound(double x, double u) {
  return std::abs(x) * sigmoid(u) * kEps * (8.0 + 5.0 * std::abs(u) * (1.0 - sigmoid(u)));
}

TEST_CASE("gelu agrees with the tanh formula in double") {
  for (float const x : grid(6.0f, 20000)) {
    auto const d = static_cast<double>(x);
    double const u = 2.0 * std::sqrt(2.0 / M_PI) * (d + 0.044715 * d * d * d);
    INFO("x = " << x);
    REQUIRE(std::abs(math::gelu(x) - gelu(d)) <= activation_bound(d, u) + 1e-16);
  }
  CHECK(math::gelu(0.0f) == 0.0f);
  CHECK(math::gelu(100.0f) == 100.0f);
  CHECK(math::gelu(-100.0f) == 0.0f);
  CHECK(std::isnan(math::gelu(kNan)));
}

TEST_CASE("silu agrees with its double formula") {
  for (float const x : grid(30.0f, 20000)) {
    auto const d = static_cast<double>(x);
    INFO("x = " << x);
    REQUIRE(std::abs(math::silu(x) - silu(d)) <= activation_bound(d, d));
  }
  CHECK(math::silu(100.0f) == 100.0f);
  CHECK(math::silu(-100.0f) == 0.0f);
  CHECK(std::isnan(math::silu(kNan)));
}

TEST_CASE("the gradients of gelu and silu are the slopes of their double formulas") {
  // Both are sums of terms below 2 in magnitude, each a dozen roundings long at most: 32 eps; the
  // difference quotient adds rounding of 2^-53 |f| / h < 1e-10.
  for (float const x : grid(8.0f, 4000)) {
    auto const d = static_cast<double>(x);
    INFO("x = " << x);
    REQUIRE(std::abs(math::gelu_grad(x) - slope(gelu, d)) <= 32.0 * kEps + 1e-9);
    REQUIRE(std::abs(math::silu_grad(x) - slope(silu, d)) <= 32.0 * kEps + 1e-9);
  }
  CHECK(math::gelu_grad(100.0f) == 1.0f);
  CHECK(math::gelu_grad(-100.0f) == 0.0f);
  CHECK(math::silu_grad(100.0f) == 1.0f);
  CHECK(math::silu_grad(-100.0f) == 0.0f);
}

TEST_CASE("the gradients keep a NaN and stay finite at large arguments") {
  CHECK(std::isnan(math::gelu_grad(kNan)));
  CHECK(std::isnan(math::silu_grad(kNan)));
  for (float const x : {1e10f, -1e10f}) {
    CHECK(std::isfinite(math::gelu_grad(x)));
    CHECK(std::isfinite(math::silu_grad(x)));
  }
}

TEST_CASE("bf16 is the nearest of the two around a value, the even one of two as near") {
  // Of neighbours a and b: decided on doubles, where both distances are exact. Beyond the largest
  // finite one stands 2^128, which is written as infinity.
  auto const value = [](std::uint32_t half) {
    return (half & 0x7fffu) == 0x7f80u
               ? std::ldexp(1.0, 128)
               : std::abs(static_cast<double>(math::from_bf16(static_cast<std::uint16_t>(half))));
  };
  int wrong = 0;
  for (std::uint32_t upper = 0; upper < 65536; ++upper) {
    if ((upper & 0x7f80u) == 0x7f80u) continue;
    for (std::uint32_t lower : {0u, 1u, 0x1234u, 0x7fffu, 0x8000u, 0x8001u, 0xfedcu, 0xffffu}) {
      float const x = std::bit_cast<float>(upper << 16 | lower);
      double const below = std::abs(static_cast<double>(x)) - value(upper),
                   above = value(upper + 1) - std::abs(static_cast<double>(x));
      bool const up = above < below || (above == below && (upper & 1u) == 1);
      if (math::to_bf16(x) != (up ? upper + 1 : upper)) ++wrong;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("every bf16 survives a way through f32, and a NaN never becomes a number") {
  int wrong = 0;
  for (std::uint32_t i = 0; i < 65536; ++i) {
    auto const half = static_cast<std::uint16_t>(i);
    if (math::to_bf16(math::from_bf16(half)) != half) ++wrong;
  }
  CHECK(wrong == 0);
  for (std::uint32_t const nan : {0x7f800001u, 0xff80ffffu, 0x7fffffffu, 0xffc00000u}) {
    CHECK(std::isnan(math::from_bf16(math::to_bf16(std::bit_cast<float>(nan)))));
  }
}

TEST_CASE("three AdamW steps of one element agree with double") {
  math::AdamScalars s{.lr = 3e-3f,
                      .beta1 = 0.9f,
                      .beta2 = 0.95f,
                      .eps = 1e-8f,
                      .weight_decay = 0.1f,
                      .correction1 = 0,
                      .correction2 = 0};
  float weight = 0.7f, m = 0, v = 0;
  double w_exact = weight, m_exact = 0, v_exact = 0, product1 = 1, product2 = 1;
  for (float const grad : {0.3f, -1.7f, 1e-3f}) {
    product1 *= s.beta1;
    product2 *= s.beta2;
    s.correction1 = static_cast<float>(1 - product1);
    s.correction2 = static_cast<float>(1 - product2);
    math::adamw(weight, m, v, grad, s);
    double const g = grad;
    m_exact = s.beta1 * m_exact + (1 - static_cast<double>(s.beta1)) * g;
    v_exact = s.beta2 * v_exact + (1 - static_cast<double>(s.beta2)) * g * g;
    double const step = m_exact / (1 - product1) / (std::sqrt(v_exact / (1 - product2)) + s.eps);
    w_exact -= static_cast<double>(s.lr) * (step + static_cast<double>(s.weight_decay) * w_exact);
    // m and v: four roundings a step over three steps. m may cancel: relative to its largest term.
    CHECK(std::abs(m - m_exact) <= 12 * kEps * 0.2);
    CHECK(std::abs(v - v_exact) <= 12 * kEps * v_exact);
    // The weight itself is rounded once a step; its update (at most lr * 1.3) carries 40 eps.
    CHECK(std::abs(weight - w_exact) <= 3 * kEps + 40 * kEps * static_cast<double>(s.lr) * 1.3);
  }
}

TEST_CASE(
    "AdamW leaves a weight without gradient and decay alone, and shrinks one by lr times decay") {
  math::AdamScalars s{.lr = 0.5f,
                      .beta1 = 0.9f,
                      .beta2 = 0.95f,
                      .eps = 1e-8f,
                      .weight_decay = 0,
                      .correction1 = 0.1f,
                      .correction2 = 0.05f};
  float weight = 1.25f, m = 0, v = 0;
  math::adamw(weight, m, v, 0.0f, s);
  CHECK(weight == 1.25f);
  s.weight_decay = 0.5f;
  math::adamw(weight, m, v, 0.0f, s);
  CHECK(weight == 1.25f * 0.75f);
}

TEST_CASE("E19: a weight of one moves under an update of 6e-4 and keeps what bf16 would lose") {
  math::AdamScalars const s{.lr = 6e-4f,
                            .beta1 = 0.0f,
                            .beta2 = 0.0f,
                            .eps = 0.0f,
                            .weight_decay = 0,
                            .correction1 = 1,
                            .correction2 = 1};
  float weight = 1.0f, m = 0, v = 0;
  math::adamw(weight, m, v, 0.25f, s);
  CHECK(std::abs(weight - (1.0 - 6e-4)) <= kEps + 6e-4 * 4 * kEps);
}

}  // namespace
}  // namespace copus
