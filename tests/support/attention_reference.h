// Attention and its gradients in double, with the sums of absolute terms that bound its roundings.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace copus::test {

struct AttentionSizes {
  std::int64_t B, T, H, K, D;
};

// An output in double, and the sum of the absolute values of its terms.
struct Sum {
  std::vector<double> value, terms;
  explicit Sum(std::size_t n) : value(n), terms(n) {}
  void add(std::int64_t i, double x) {
    value[static_cast<std::size_t>(i)] += x;
    terms[static_cast<std::size_t>(i)] += std::abs(x);
  }
};

struct AttentionReference {
  Sum out, d_q, d_k, d_v;
  std::vector<double> lse;  // (B, H, T)
};

// q, d_out, out (B, T, H, D), k, v (B, T, K, D), contiguous. Gradients are those at the given
// `out`.
inline AttentionReference attention_reference(const AttentionSizes& s, double scale,
                                              const std::vector<double>& q,
                                              const std::vector<double>& k,
                                              const std::vector<double>& v,
                                              const std::vector<double>& d_out,
                                              const std::vector<double>& out) {
  auto const at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  AttentionReference r{Sum(q.size()), Sum(q.size()), Sum(k.size()), Sum(v.size()),
                       std::vector<double>(at(s.B * s.H * s.T))};
  std::vector<double> p(at(s.T));
  for (std::int64_t i = 0; i < s.B * s.T * s.H; ++i) {
    std::int64_t const h = i % s.H, t = i / s.H % s.T, b = i / s.H / s.T, query = i * s.D;
    auto const key_row = [&](std::int64_t key) {
      return ((b * s.T + key) * s.K + h * s.K / s.H) * s.D;
    };
    auto const dot = [&](const std::vector<double>& x, const std::vector<double>& y,
                         std::int64_t row) {
      double sum = 0.0;
      for (std::int64_t d = 0; d < s.D; ++d) sum += x[at(query + d)] * y[at(row + d)];
      return sum;
    };
    double sum = 0.0;
    for (std::int64_t key = 0; key <= t; ++key)
      sum += p[at(key)] = std::exp(dot(q, k, key_row(key)) * scale);
    r.lse[at((b * s.H + h) * s.T + t)] = std::log(sum);
    double const along = dot(d_out, out, query);
    for (std::int64_t key = 0; key <= t; ++key) {
      std::int64_t const row = key_row(key);
      double const weight = p[at(key)] / sum;
      double const d_s = weight * (dot(d_out, v, row) - along) * scale;
      for (std::int64_t d = 0; d < s.D; ++d) {
        r.out.add(query + d, weight * v[at(row + d)]);
        r.d_v.add(row + d, weight * d_out[at(query + d)]);
        r.d_q.add(query + d, d_s * k[at(row + d)]);
        r.d_k.add(row + d, d_s * q[at(query + d)]);
      }
    }
  }
  return r;
}

}  // namespace copus::test
