#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "ops/op_cases.h"

namespace copus::ops {
namespace {

constexpr double kEps = 1e-5;

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

// mean 0 for RMSNorm.
struct RowStatistics {
  double mean, rstd;
};
RowStatistics statistics(const std::vector<double>& x, std::int64_t row, std::int64_t C,
                         bool centred) {
  double mean = 0.0, square = 0.0;
  for (std::int64_t c = 0; c < C; ++c) mean += x[at(row * C + c)];
  mean = centred ? mean / static_cast<double>(C) : 0.0;
  for (std::int64_t c = 0; c < C; ++c) square += std::pow(x[at(row * C + c)] - mean, 2);
  return {mean, 1.0 / std::sqrt(square / static_cast<double>(C) + kEps)};
}

// Two of these have a sum that is exact in bf16 too: the statistics are those of x as it is stored.
Operand in_sixteenths(Operand operand) {
  for (double& value : operand.values)
    value = std::round(16.0 * std::clamp(value, -4.0, 4.0)) / 16.0;
  return operand;
}

// `sums`: x is written as a + b first.
OpCase forward_case(std::int64_t N, std::int64_t C, std::int64_t gap, bool centred,
                    bool sums = false) {
  OpCase row;
  row.op = centred ? "layer_norm" : "rms_norm";
  row.name = fmt::format("({}, {}){}{}", N, C, gap > 0 ? " strided" : "", sums ? " of a sum" : "");
  auto const terms = static_cast<double>(C);
  if (centred) {
    row.operands = {output("out", {N, C}, terms), output("mean", {N}, terms),
                    output("rstd", {N}, terms),   input("x", {N, C}, gap),
                    input("gain", {C}),           input("bias", {C})};
    row.run = [sums](Backend& backend, const Views& v) {
      backend.layer_norm(v[0], v[1], v[2], v[3], v[4], v[5], static_cast<float>(kEps),
                         sums ? Addends{v[6], v[7]} : Addends{});
    };
  } else {
    row.operands = {output("out", {N, C}, terms), output("rstd", {N}, terms),
                    input("x", {N, C}, gap), input("gain", {C})};
    row.run = [sums](Backend& backend, const Views& v) {
      backend.rms_norm(v[0], v[1], v[2], v[3], static_cast<float>(kEps),
                       sums ? Addends{v[4], v[5]} : Addends{});
    };
  }
  std::size_t const x = centred ? 3 : 2;
  if (sums) {
    row.operands[x] = output("x", {N, C}, 1.0, gap);
    row.operands.push_back(in_sixteenths(input("a", {N, C}, gap)));
    row.operands.push_back(in_sixteenths(input("b", {N, C})));
  }
  row.reference = [=](Values& v) {
    if (sums) {
      for (std::size_t i = 0; i < v[x].size(); ++i) v[x][i] = v[v.size() - 2][i] + v.back()[i];
    }
    for (std::int64_t r = 0; r < N; ++r) {
      RowStatistics const s = statistics(v[x], r, C, centred);
      if (centred) v[1][at(r)] = s.mean;
      v[x - 1][at(r)] = s.rstd;
      for (std::int64_t c = 0; c < C; ++c) {
        v[0][at(r * C + c)] = (v[x][at(r * C + c)] - s.mean) * s.rstd * v[x + 1][at(c)] +
                              (centred ? v[5][at(c)] : 0.0);
      }
    }
  };
  row.roundings = 8.0;
  return row;
}

// Operands of a backward row: d_x, d_gain, d_bias, d_out, x, gain, mean, rstd; RMSNorm's has no
// bias and no mean, which are simply not handed over.
OpCase backward_case(std::int64_t N, std::int64_t C, std::int64_t gap, bool centred) {
  OpCase row;
  row.op = centred ? "layer_norm_backward" : "rms_norm_backward";
  row.name = fmt::format("({}, {}){}", N, C, gap > 0 ? " strided" : "");
  auto const down = static_cast<double>(N + 1), across = static_cast<double>(C + 1);
  Operand const x = input("x", {N, C}, gap);
  std::vector<double> means, rstds;
  double largest = 1.0;
  for (std::int64_t r = 0; r < N; ++r) {
    RowStatistics const s = statistics(x.values, r, C, centred);
    means.push_back(s.mean);  // in double for the reference, rounded where the backend reads it
    rstds.push_back(s.rstd);
    largest = std::max(largest, s.rstd);
  }
  row.operands = {inout("d_x", {N, C}, across, gap),
                  inout("d_gain", {C}, down),
                  inout("d_bias", {C}, down),
                  input("d_out", {N, C}),
                  x,
                  input("gain", {C}),
                  with_values(input("mean", {N}), means),
                  with_values(input("rstd", {N}), rstds)};
  row.run = [=](Backend& backend, const Views& v) {
    if (centred) {
      backend.layer_norm_backward(v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]);
    } else {
      backend.rms_norm_backward(v[0], v[1], v[3], v[4], v[5], v[7]);
    }
  };
  row.reference = [=](Values& v) {
    for (std::int64_t r = 0; r < N; ++r) {
      double const mean = centred ? v[6][at(r)] : 0.0, rstd = v[7][at(r)];
      double sum = 0.0, dot = 0.0;
      for (std::int64_t c = 0; c < C; ++c) {
        double const n = (v[4][at(r * C + c)] - mean) * rstd, d = v[3][at(r * C + c)];
        v[1][at(c)] += d * n;
        if (centred) v[2][at(c)] += d;
        sum += centred ? d * v[5][at(c)] : 0.0;
        dot += d * v[5][at(c)] * n;
      }
      for (std::int64_t c = 0; c < C; ++c) {
        double const n = (v[4][at(r * C + c)] - mean) * rstd;
        v[0][at(r * C + c)] +=
            rstd * (v[3][at(r * C + c)] * v[5][at(c)] - (sum + n * dot) / static_cast<double>(C));
      }
    }
  };
  row.objective = [=](const Values& v) {
    double total = 0.0;
    for (std::int64_t r = 0; r < N; ++r) {
      RowStatistics const s = statistics(v[4], r, C, centred);
      for (std::int64_t c = 0; c < C; ++c) {
        double const n = (v[4][at(r * C + c)] - s.mean) * s.rstd;
        total += v[3][at(r * C + c)] * (n * v[5][at(c)] + (centred ? v[2][at(c)] : 0.0));
      }
    }
    return total;
  };
  row.gradients = {{0, 4}, {1, 5}};
  if (centred) row.gradients.push_back({2, 2});
  // What cancels inside the brackets is multiplied by rstd.
  row.roundings = 8.0 * largest;
  return row;
}

}  // namespace

std::vector<OpCase> norm_cases() {
  std::vector<OpCase> rows;
  for (bool const centred : {false, true}) {
    for (auto const& [N, C, gap] : std::vector<std::array<std::int64_t, 3>>{
             {1, 1, 0}, {0, 5, 0}, {3, 17, 0}, {9, 64, 6}, {70, 5, 0}}) {
      rows.push_back(forward_case(N, C, gap, centred));
      rows.push_back(backward_case(N, C, gap, centred));
    }
    rows.push_back(forward_case(5, 1601, 0, centred));
    rows.push_back(forward_case(3, 1604, 4, centred));
    rows.push_back(forward_case(7, 1604, 4, centred, true));
    rows.push_back(forward_case(1, 1, 0, centred, true));
    // Many rows, and wide ones; finite differences of so many elements would take minutes.
    for (auto const& [N, C] : std::vector<std::array<std::int64_t, 2>>{{1100, 8}, {5, 1604}}) {
      OpCase row = backward_case(N, C, 0, centred);
      row.objective = nullptr;
      row.gradients.clear();
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

}  // namespace copus::ops
