#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "ops/op_cases.h"

namespace copus::ops {
namespace {

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

OpCase rope_case(std::int64_t B, std::int64_t T, std::int64_t heads, std::int64_t D,
                 std::int64_t gap, bool inverse) {
  std::int64_t const first = 2, half = D / 2;
  OpCase row;
  row.op = "rope";
  row.name = fmt::format("({}, {}, {}, {}){}{}", B, T, heads, D, gap > 0 ? " strided" : "",
                         inverse ? " inverse" : "");
  row.operands = {inout("x", {B, T, heads, D}, 1.0, gap), input("table", {first + T, half, 2})};
  row.run = [=](Backend& backend, const Views& v) { backend.rope(v[0], v[1], first, inverse); };
  row.reference = [=](Values& v) {
    for (std::int64_t i = 0; i < B * T * heads * half; ++i) {
      std::int64_t const pair = i % half, head = i / half, t = head / heads % T;
      double& low = v[0][at(head * D + pair)];
      double& high = v[0][at(head * D + half + pair)];
      double const cosine = v[1][at(((first + t) * half + pair) * 2)];
      double const sine = (inverse ? -1.0 : 1.0) * v[1][at(((first + t) * half + pair) * 2 + 1)];
      double const x = low, y = high;
      low = x * cosine - y * sine;
      high = y * cosine + x * sine;
    }
  };
  return row;
}

struct Shape {
  std::int64_t B, T, H, K, D, gap;
  float dropout;
};

AttentionOptions options_of(const Shape& s) {
  AttentionOptions o;
  o.scale = 1.0f / std::sqrt(static_cast<float>(s.D));
  o.dropout = {s.dropout, stream_of({11, RngPurpose::dropout, 5, 1}), 6};
  o.first_head = 1;
  o.global_heads = s.H + 2;
  return o;
}

std::string name_of(const Shape& s) {
  return fmt::format("(B {}, T {}, H {}, K {}, D {}){}{}", s.B, s.T, s.H, s.K, s.D,
                     s.gap > 0 ? " strided" : "",
                     s.dropout > 0.0f ? fmt::format(" dropout {}", s.dropout) : "");
}

// The scores of one query, and the factors of dropout.
struct Scores {
  std::vector<double> score, keep;
};

struct Query {
  std::int64_t b, h, t;
};

Scores scores_of(const Shape& s, const Query& i, const std::vector<double>& q,
                 const std::vector<double>& k) {
  AttentionOptions const o = options_of(s);
  Scores row;
  std::int64_t const kv = i.h * s.K / s.H;
  for (std::int64_t key = 0; key <= i.t; ++key) {
    double score = 0.0;
    for (std::int64_t d = 0; d < s.D; ++d) {
      score += q[at(((i.b * s.T + i.t) * s.H + i.h) * s.D + d)] *
               k[at(((i.b * s.T + key) * s.K + kv) * s.D + d)];
    }
    row.score.push_back(score * static_cast<double>(o.scale));
    std::int64_t const element =
        ((i.b * o.global_heads + o.first_head + i.h) * s.T + i.t) * s.T + key;
    double const unit =
        random_bits(o.dropout.stream, o.dropout.first + static_cast<std::uint64_t>(element)) /
        4294967296.0;
    double const p = static_cast<double>(s.dropout);
    row.keep.push_back(unit >= p ? 1.0 / (1.0 - p) : 0.0);
  }
  return row;
}

double log_sum_exp(const std::vector<double>& x) {
  double const most = *std::max_element(x.begin(), x.end());
  double sum = 0.0;
  for (double const value : x) sum += std::exp(value - most);
  return most + std::log(sum);
}

template <class Body>
void for_queries(const Shape& s, const Body& body) {
  for (std::int64_t b = 0; b < s.B; ++b) {
    for (std::int64_t h = 0; h < s.H; ++h) {
      for (std::int64_t t = 0; t < s.T; ++t) body(Query{b, h, t});
    }
  }
}

std::vector<double> forward(const Shape& s, const std::vector<double>& q,
                            const std::vector<double>& k, const std::vector<double>& v,
                            std::vector<double>* lse) {
  std::vector<double> out(q.size(), 0.0);
  for_queries(s, [&](const Query& i) {
    Scores const row = scores_of(s, i, q, k);
    double const all = log_sum_exp(row.score);
    std::int64_t const kv = i.h * s.K / s.H;
    for (std::int64_t key = 0; key <= i.t; ++key) {
      for (std::int64_t d = 0; d < s.D; ++d) {
        out[at(((i.b * s.T + i.t) * s.H + i.h) * s.D + d)] +=
            std::exp(row.score[at(key)] - all) * row.keep[at(key)] *
            v[at(((i.b * s.T + key) * s.K + kv) * s.D + d)];
      }
    }
    if (lse != nullptr) (*lse)[at((i.b * s.H + i.h) * s.T + i.t)] = all;
  });
  return out;
}

// v: d_q, d_k, d_v, d_out, q, k, v, out, lse. As the operation is defined: from the out and lse it
// is handed, so that a NaN travels the same way in both.
void backward(const Shape& s, Values& v) {
  for (std::size_t i = 0; i < 3; ++i) std::fill(v[i].begin(), v[i].end(), 0.0);
  double const scale = static_cast<double>(options_of(s).scale);
  for_queries(s, [&](const Query& i) {
    Scores const row = scores_of(s, i, v[4], v[5]);
    std::int64_t const query = ((i.b * s.T + i.t) * s.H + i.h) * s.D, kv = i.h * s.K / s.H;
    double const lse = v[8][at((i.b * s.H + i.h) * s.T + i.t)];
    double along = 0.0;
    for (std::int64_t d = 0; d < s.D; ++d) along += v[3][at(query + d)] * v[7][at(query + d)];
    for (std::int64_t key = 0; key <= i.t; ++key) {
      std::int64_t const key_row = ((i.b * s.T + key) * s.K + kv) * s.D;
      double const p = std::exp(row.score[at(key)] - lse), keep = row.keep[at(key)];
      double d_p = 0.0;
      for (std::int64_t d = 0; d < s.D; ++d) {
        d_p += keep * v[3][at(query + d)] * v[6][at(key_row + d)];
        v[2][at(key_row + d)] += p * keep * v[3][at(query + d)];
      }
      for (std::int64_t d = 0; d < s.D; ++d) {
        v[0][at(query + d)] += p * (d_p - along) * scale * v[5][at(key_row + d)];
        v[1][at(key_row + d)] += p * (d_p - along) * scale * v[4][at(query + d)];
      }
    }
  });
}

double terms_of(const Shape& s) {
  return static_cast<double>(s.D + s.T * s.H / std::max<std::int64_t>(s.K, 1));
}

OpCase attention_case(const Shape& s) {
  OpCase row;
  row.op = "attention";
  row.name = name_of(s);
  row.operands = {output("out", {s.B, s.T, s.H, s.D}, terms_of(s)),
                  output("lse", {s.B, s.H, s.T}, terms_of(s)),
                  input("q", {s.B, s.T, s.H, s.D}, s.gap), input("k", {s.B, s.T, s.K, s.D}, s.gap),
                  input("v", {s.B, s.T, s.K, s.D}, s.gap)};
  row.run = [s](Backend& backend, const Views& v) {
    backend.attention(v[0], v[1], v[2], v[3], v[4], options_of(s));
  };
  row.reference = [s](Values& v) { v[0] = forward(s, v[2], v[3], v[4], &v[1]); };
  row.roundings = 8.0;
  return row;
}

OpCase attention_backward_case(const Shape& s, bool check_slopes) {
  OpCase row;
  row.op = "attention_backward";
  row.name = name_of(s);
  double const terms = terms_of(s);
  Operand const q = input("q", {s.B, s.T, s.H, s.D}, s.gap),
                k = input("k", {s.B, s.T, s.K, s.D}, s.gap),
                v_in = input("v", {s.B, s.T, s.K, s.D}, s.gap);
  std::vector<double> lse(at(s.B * s.H * s.T));
  std::vector<double> const out = forward(s, q.values, k.values, v_in.values, &lse);
  row.operands = {output("d_q", {s.B, s.T, s.H, s.D}, terms, s.gap),
                  output("d_k", {s.B, s.T, s.K, s.D}, terms, s.gap),
                  output("d_v", {s.B, s.T, s.K, s.D}, terms, s.gap),
                  input("d_out", {s.B, s.T, s.H, s.D}),
                  q,
                  k,
                  v_in,
                  with_values(input("out", {s.B, s.T, s.H, s.D}), out),
                  with_values(input("lse", {s.B, s.H, s.T}), lse)};
  row.run = [s](Backend& backend, const Views& v) {
    backend.attention_backward(v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8], options_of(s));
  };
  row.reference = [s](Values& v) { backward(s, v); };
  if (check_slopes) {
    row.objective = [s](const Values& v) {
      std::vector<double> const y = forward(s, v[4], v[5], v[6], nullptr);
      double total = 0.0;
      for (std::size_t i = 0; i < y.size(); ++i) total += v[3][i] * y[i];
      return total;
    };
    row.gradients = {{0, 4}, {1, 5}, {2, 6}};
  }
  row.roundings = 8.0;
  return row;
}

}  // namespace

std::vector<OpCase> attention_cases() {
  std::vector<OpCase> rows;
  for (bool const inverse : {false, true}) {
    rows.push_back(rope_case(1, 1, 1, 2, 0, inverse));
    rows.push_back(rope_case(0, 3, 2, 4, 0, inverse));
    rows.push_back(rope_case(2, 5, 3, 34, 11, inverse));
  }
  for (Shape const& s : std::vector<Shape>{{1, 1, 1, 1, 1, 0, 0.0f},
                                           {0, 3, 2, 1, 4, 0, 0.0f},
                                           {2, 5, 4, 2, 3, 7, 0.0f},
                                           {1, 6, 3, 3, 4, 0, 0.25f},
                                           {1, 7, 3, 1, 5, 2, 0.5f}}) {
    rows.push_back(attention_case(s));
    rows.push_back(attention_backward_case(s, true));
  }
  // More than one block of queries, and a last one that is not full; heads of each width that a
  // backend may have a kernel for.
  for (Shape const& s : std::vector<Shape>{{1, 131, 2, 1, 16, 5, 0.0f},
                                           {2, 70, 2, 2, 33, 0, 0.1f},
                                           {1, 133, 4, 2, 64, 0, 0.2f},
                                           {1, 98, 2, 1, 80, 4, 0.0f},
                                           {1, 69, 2, 2, 160, 0, 0.1f},
                                           // Many blocks of one kv head; many heads of two blocks.
                                           {1, 330, 3, 1, 8, 0, 0.1f},
                                           {3, 66, 8, 8, 4, 2, 0.0f},
                                           // Runs of one, two and three blocks; of two each.
                                           {1, 705, 2, 1, 4, 0, 0.1f},
                                           {6, 210, 2, 2, 4, 0, 0.0f}}) {
    rows.push_back(attention_case(s));
    rows.push_back(attention_backward_case(s, false));
  }
  return rows;
}

}  // namespace copus::ops
