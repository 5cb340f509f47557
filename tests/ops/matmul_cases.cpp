#include <fmt/core.h>

#include "ops/op_cases.h"

namespace copus::ops {
namespace {

struct Product {
  std::int64_t m, n, k;
  MatmulOptions options;
  bool bias = false;
  std::int64_t gap = 0;
};

OpCase matmul_case(const Product& p) {
  auto const [m, n, k] = std::tuple(p.m, p.n, p.k);
  MatmulOptions const o = p.options;
  bool const bias = p.bias;
  OpCase row;
  row.op = "matmul";
  row.name = fmt::format("({}, {}, {}){}{}{}{}{}", m, n, k, o.transpose_a ? " a^T" : "",
                         o.transpose_b ? " b^T" : "", o.accumulate ? " adds" : "",
                         bias ? " bias" : "", p.gap > 0 ? " strided" : "");
  auto const terms = static_cast<double>(k + 2);
  row.operands = {
      o.accumulate ? inout("out", {m, n}, terms, p.gap) : output("out", {m, n}, terms, p.gap),
      o.transpose_a ? input("a", {k, m}, p.gap) : input("a", {m, k}, p.gap),
      o.transpose_b ? input("b", {n, k}, p.gap) : input("b", {k, n}, p.gap)};
  if (bias) row.operands.push_back(input("bias", {n}));
  row.run = [o, bias](Backend& backend, const Views& v) {
    backend.matmul(v[0], v[1], v[2], o, bias ? v[3] : TensorView());
  };
  row.reference = [=](Values& v) {
    auto const at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t j = 0; j < n; ++j) {
        double sum = o.accumulate ? v[0][at(i * n + j)] : 0.0;
        if (bias) sum += v[3][at(j)];
        for (std::int64_t l = 0; l < k; ++l) {
          sum += v[1][at(o.transpose_a ? l * m + i : i * k + l)] *
                 v[2][at(o.transpose_b ? j * k + l : l * n + j)];
        }
        v[0][at(i * n + j)] = sum;
      }
    }
  };
  return row;
}

OpCase column_sum_case(std::int64_t N, std::int64_t C, std::int64_t gap) {
  OpCase row;
  row.op = "column_sum";
  row.name = fmt::format("({}, {}){}", N, C, gap > 0 ? " strided" : "");
  row.operands = {inout("d_bias", {C}, static_cast<double>(N + 1)), input("d_out", {N, C}, gap)};
  row.run = [](Backend& backend, const Views& v) { backend.column_sum(v[0], v[1]); };
  row.reference = [C](Values& v) {
    for (std::size_t i = 0; i < v[1].size(); ++i) v[0][i % static_cast<std::size_t>(C)] += v[1][i];
  };
  // The gradient of adding a bias to every row.
  row.objective = [C](const Values& v) {
    double total = 0.0;
    for (std::size_t i = 0; i < v[1].size(); ++i) {
      total += v[1][i] * v[0][i % static_cast<std::size_t>(C)];
    }
    return total;
  };
  row.gradients = {{0, 0}};
  return row;
}

}  // namespace

std::vector<OpCase> matmul_cases() {
  std::vector<OpCase> rows;
  for (bool const a : {false, true}) {
    for (bool const b : {false, true}) {
      for (bool const adds : {false, true}) {
        MatmulOptions const o{a, b, adds};
        rows.push_back(matmul_case({1, 1, 1, o, true, 0}));
        rows.push_back(matmul_case({13, 17, 7, o, false, 3}));
        rows.push_back(matmul_case({70, 67, 65, o, true, 0}));
        rows.push_back(matmul_case({5, 130, 300, o, true, 5}));
        rows.push_back(matmul_case({129, 1, 33, o, false, 0}));
        // Columns for two threads, the last ones a part of a block.
        rows.push_back(matmul_case({3, 533, 21, o, true, 5}));
        rows.push_back(matmul_case({0, 4, 3, o, true, 0}));
        rows.push_back(matmul_case({3, 4, 0, o, true, 0}));
        rows.push_back(matmul_case({3, 4, 0, o, false, 2}));
      }
    }
  }
  rows.push_back(column_sum_case(1, 1, 0));
  rows.push_back(column_sum_case(0, 5, 0));
  rows.push_back(column_sum_case(71, 300, 0));
  rows.push_back(column_sum_case(100, 33, 7));
  rows.push_back(column_sum_case(300, 132, 4));
  return rows;
}

}  // namespace copus::ops
