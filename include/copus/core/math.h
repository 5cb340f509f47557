// Every scalar formula, once, for host and device. Kernels supply loops, loads and reductions,
// never formulas. All are branch-free (selects only) so that a compiler vectorises the loop around
// them, and a NaN stays a NaN.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

#include "copus/core/hd.h"

namespace copus::math {

namespace detail {
COPUS_HD float bits_to_float(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
COPUS_HD std::uint32_t float_to_bits(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
}  // namespace detail

// e^x within 2 ulp; 0 below -86.9 (1.8e-38; so a logit of -inf has probability 0), +inf above 88.7.
// x = n ln 2 + r with |r| <= ln 2 / 2, e^r by its Taylor polynomial, 2^n by the exponent bits.
COPUS_HD float exp(float x) {
  constexpr float kLog2e = 1.44269504088896341f;
  constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  constexpr float kRound =
      12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer in the low mantissa bits
  float const clamped = x > 88.8f ? 88.8f : (x < -87.4f ? -87.4f : x);
  float const shifted = std::fma(clamped, kLog2e, kRound);
  float const n = shifted - kRound;
  float r = std::fma(n, -kLn2High, clamped);
  r = std::fma(n, -kLn2Low, r);
  float p = 1.0f / 5040.0f;
  p = std::fma(p, r, 1.0f / 720.0f);
  p = std::fma(p, r, 1.0f / 120.0f);
  p = std::fma(p, r, 1.0f / 24.0f);
  p = std::fma(p, r, 1.0f / 6.0f);
  p = std::fma(p, r, 0.5f);
  p = std::fma(p, r, 1.0f);
  p = std::fma(p, r, 1.0f);
  // 2^n in two factors: n may be 128, whose own exponent does not exist. From -86.9 up n is at
  // least -125, so that 2^(n-1) is normal too.
  std::uint32_t const biased = detail::float_to_bits(shifted) - detail::float_to_bits(kRound);
  float const half = detail::bits_to_float((biased + 126u) << 23);  // 2^(n-1)
  float const value = 2.0f * p * half;  // in this order nothing on the way is subnormal
  return x < -86.9f ? 0.0f : value;
}

COPUS_HD float sigmoid(float x) {
  return 1.0f / (1.0f + exp(-x));
}

namespace detail {
// 1 - s for s = sigmoid(x) and q = e^-x, without the cancellation where s is near 1.
COPUS_HD float complement(float s, float q) {
  return q < 1.0f ? q * s : 1.0f - s;
}
}  // namespace detail

// GELU, tanh form (Hendrycks and Gimpel 2016): 0.5 x (1 + tanh(u)) = x sigmoid(2u), u =
// sqrt(2/pi)(x + 0.044715 x^3).
COPUS_HD float gelu_inner(float x) {
  constexpr float kScale = 1.5957691216057308f;  // 2 sqrt(2/pi)
  return kScale * x * std::fma(0.044715f * x, x, 1.0f);
}
COPUS_HD float gelu(float x) {
  return x * sigmoid(gelu_inner(x));
}
COPUS_HD float gelu_grad(float x) {
  constexpr float kScale = 1.5957691216057308f;
  float const q = exp(-gelu_inner(x)), s = 1.0f / (1.0f + q);
  float const d_inner = kScale * std::fma(3.0f * 0.044715f * x, x, 1.0f);
  return std::fma(x * s * detail::complement(s, q), d_inner, s);
}

COPUS_HD float silu(float x) {
  return x * sigmoid(x);
}
COPUS_HD float silu_grad(float x) {
  float const q = exp(-x), s = 1.0f / (1.0f + q);
  return s * std::fma(x, detail::complement(s, q), 1.0f);
}

// bfloat16 is the upper half of an f32. To it: the nearest, ties to even; what rounds beyond the
// largest becomes infinite; a NaN stays one, with the bits of its payload that fit.
COPUS_HD std::uint16_t to_bf16(float value) {
  std::uint32_t const bits = detail::float_to_bits(value), upper = bits >> 16;
  std::uint32_t const rounded = (bits + 0x7fffu + (upper & 1u)) >> 16;
  std::uint32_t const nan = (upper & 0x7fu) != 0 ? upper : upper | 0x40u;
  return static_cast<std::uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}
COPUS_HD float from_bf16(std::uint16_t bits) {
  return detail::bits_to_float(static_cast<std::uint32_t>(bits) << 16);
}

// A pair turned by an angle: RoPE's (Su et al. 2021); with -sine it turns back.
COPUS_HD void rotate(float& low, float& high, float cosine, float sine) {
  float const x = low, y = high;
  low = std::fma(x, cosine, -(y * sine));
  high = std::fma(y, cosine, x * sine);
}

// A sum of exp(x - old_max) as the sum of exp(x - new_max).
COPUS_HD float rescaled_sum(float sum, float old_max, float new_max) {
  return sum * exp(old_max - new_max);
}

// The loss of one row: -log softmax at the target, from the row's maximum, sum and target logit.
COPUS_HD float cross_entropy(float row_max, float row_sum, float target_logit) {
  return std::log(row_sum) + (row_max - target_logit);
}

// One element of AdamW (Loshchilov and Hutter 2019). `grad` is already averaged and clipped.
struct AdamScalars {
  float lr, beta1, beta2, eps, weight_decay;
  float correction1, correction2;  // 1 - product of the betas so far
};
COPUS_HD void adamw(float& weight, float& m, float& v, float grad, const AdamScalars& s) {
  m = std::fma(s.beta1, m, (1.0f - s.beta1) * grad);
  v = std::fma(s.beta2, v, (1.0f - s.beta2) * grad * grad);
  float const step = (m / s.correction1) / (std::sqrt(v / s.correction2) + s.eps);
  weight = std::fma(-s.lr, std::fma(s.weight_decay, weight, step), weight);
}

// A 64-bit finaliser (Stafford's variant 13 of MurmurHash3's).
COPUS_HD std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

// One 64-bit number per element of a tensor, by its bits and its number in the whole tensor:
// layout-independent fingerprints are sums of these.
COPUS_HD std::uint64_t element_hash(std::uint32_t bits, std::uint64_t number, std::uint64_t salt) {
  return mix(number * 0x9E3779B97F4A7C15ull ^ salt ^ static_cast<std::uint64_t>(bits) << 32);
}

}  // namespace copus::math
