#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "ops/op_cases.h"

namespace copus::ops {
namespace {

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

struct Shape {
  std::int64_t N, V, first, valid, gap;
};

std::string name_of(const Shape& s) {
  return fmt::format("({}, {}) columns {} to {}{}", s.N, s.V, s.first, s.first + s.valid,
                     s.gap > 0 ? " strided" : "");
}

Operand logits_of(const Shape& s, Role role) {
  Operand logits = input("logits", {s.N, s.V}, s.gap);
  logits.values = random_values("logits", s.N * s.V, -8.0, 8.0);
  logits.role = role;
  logits.terms = static_cast<double>(s.valid);
  return logits;
}

// Some masked, some of this rank's columns, some of another's.
Operand targets_of(const Shape& s) {
  std::vector<double> values = random_values("targets", s.N, static_cast<double>(s.first) - 2.0,
                                             static_cast<double>(s.first + s.valid) + 2.0);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = i % 5 == 4 ? -1.0 : std::max(0.0, std::floor(values[i]));
  }
  return ids("targets", std::move(values));
}

struct Row {
  double most = -INFINITY, sum = 0.0, target = 0.0;
  std::int64_t column = -1;  // of the target, -1 when it is not here
};
Row row_of(const Shape& s, const std::vector<double>& logits, const std::vector<double>& targets,
           std::int64_t r) {
  Row row;
  for (std::int64_t c = 0; c < s.valid; ++c) {
    row.most = std::max(row.most, logits[at(r * s.V + c)]);
  }
  for (std::int64_t c = 0; c < s.valid; ++c) {
    row.sum += std::exp(logits[at(r * s.V + c)] - row.most);
  }
  std::int64_t const column = static_cast<std::int64_t>(targets[at(r)]) - s.first;
  if (column >= 0 && column < s.valid) {
    row.column = column;
    row.target = logits[at(r * s.V + column)];
  }
  return row;
}

OpCase stats_case(const Shape& s) {
  OpCase row;
  row.op = "cross_entropy_stats";
  row.name = name_of(s);
  row.operands = {output("row_max", {s.N}), output("row_sum", {s.N}, static_cast<double>(s.valid)),
                  output("target_logit", {s.N}), logits_of(s, Role::input), targets_of(s)};
  row.run = [s](Backend& backend, const Views& v) {
    backend.cross_entropy_stats(v[0], v[1], v[2], v[3], v[4], s.first, s.valid);
  };
  row.reference = [s](Values& v) {
    for (std::int64_t r = 0; r < s.N; ++r) {
      Row const stats = row_of(s, v[3], v[4], r);
      v[0][at(r)] = stats.most;
      v[1][at(r)] = stats.sum;
      v[2][at(r)] = stats.target;
    }
  };
  return row;
}

OpCase rescale_case(std::int64_t N) {
  OpCase row;
  row.op = "cross_entropy_rescale";
  row.name = fmt::format("({})", N);
  Operand sums = input("row_sum", {N});
  sums.values = random_values("row_sum", N, 1.0, 5e4);
  sums.role = Role::inout;
  Operand most = input("row_max", {N});
  most.values = random_values("row_max", N, -9.0, 9.0);
  most.role = Role::inout;
  Operand global = input("global_max", {N});
  global.values = most.values;
  std::vector<double> const above = random_values("above", N, 0.0, 5.0);
  for (std::size_t i = 0; i < above.size(); ++i) {
    // Some ranks hold the maximum themselves.
    if (i % 3 != 0) global.values[i] += above[i];
  }
  row.operands = {sums, most, global};
  // The difference of two maxima, up to 23, is rounded once, and the exponential carries that error
  // on.
  row.roundings = 4.0 + 23.0;
  row.run = [](Backend& backend, const Views& v) {
    backend.cross_entropy_rescale(v[0], v[1], v[2]);
  };
  row.reference = [](Values& v) {
    for (std::size_t r = 0; r < v[0].size(); ++r) {
      v[0][r] *= std::exp(v[1][r] - v[2][r]);
      v[1][r] = v[2][r];
    }
  };
  return row;
}

OpCase loss_case(std::int64_t N) {
  OpCase row;
  row.op = "cross_entropy_loss";
  row.name = fmt::format("({})", N);
  Operand sums = input("row_sum", {N});
  sums.values = random_values("row_sum", N, 1.0, 5e4);
  std::vector<double> targets = random_values("targets", N, -3.0, 9.0);
  for (double& target : targets) target = std::floor(target);
  row.operands = {output("losses", {N}), input("row_max", {N}), sums, input("target_logit", {N}),
                  ids("targets", targets)};
  row.run = [](Backend& backend, const Views& v) {
    backend.cross_entropy_loss(v[0], v[1], v[2], v[3], v[4]);
  };
  row.reference = [](Values& v) {
    for (std::size_t i = 0; i < v[0].size(); ++i) {
      v[0][i] = v[4][i] < 0.0 ? 0.0 : std::log(v[2][i]) + v[1][i] - v[3][i];
    }
  };
  return row;
}

// v: logits (become d_logits), row_max, row_sum, targets.
OpCase backward_case(const Shape& s) {
  OpCase row;
  row.op = "cross_entropy_backward";
  row.name = name_of(s);
  Operand const logits = logits_of(s, Role::inout), targets = targets_of(s);
  std::vector<double> most, sums;
  for (std::int64_t r = 0; r < s.N; ++r) {
    Row const stats = row_of(s, logits.values, targets.values, r);
    most.push_back(stats.most);
    sums.push_back(stats.sum);
  }
  row.operands = {logits, with_values(input("row_max", {s.N}), most),
                  with_values(input("row_sum", {s.N}), sums), targets};
  row.run = [s](Backend& backend, const Views& v) {
    backend.cross_entropy_backward(v[0], v[0], v[1], v[2], v[3], s.first, s.valid);
  };
  row.reference = [s](Values& v) {
    for (std::int64_t r = 0; r < s.N; ++r) {
      std::int64_t const column = static_cast<std::int64_t>(v[3][at(r)]) - s.first;
      for (std::int64_t c = 0; c < s.V; ++c) {
        double& x = v[0][at(r * s.V + c)];
        bool const counts = v[3][at(r)] >= 0.0 && c < s.valid;
        x = counts ? std::exp(x - v[1][at(r)]) / v[2][at(r)] - (c == column ? 1.0 : 0.0) : 0.0;
      }
    }
  };
  return row;
}

// The gradient beside the logits, not over them.
OpCase apart_case(const Shape& s) {
  OpCase row = backward_case(s);
  row.name += ", apart";
  row.operands[0].role = Role::input;
  row.operands.push_back(output("d_logits", {s.N, s.V}, static_cast<double>(s.valid)));
  row.run = [s](Backend& backend, const Views& v) {
    backend.cross_entropy_backward(v[4], v[0], v[1], v[2], v[3], s.first, s.valid);
  };
  auto const reference = row.reference;
  row.reference = [reference](Values& v) {
    Values in_place = v;
    reference(in_place);
    v[4] = in_place[0];
  };
  return row;
}

// The same operation as the slope of the loss: Sum log sum exp - target logit over unmasked rows.
// The gradient replaces the logits, so the logits are a second, unused operand here.
OpCase slope_case(const Shape& s) {
  OpCase row = backward_case(s);
  row.name += ", slopes";
  row.operands.push_back(logits_of(s, Role::input));
  row.operands[0].role = Role::output;
  auto const run = row.run;
  row.run = [run](Backend& backend, const Views& v) {
    backend.copy(v[0], v[4]);
    run(backend, v);
  };
  auto const reference = row.reference;
  row.reference = [reference](Values& v) {
    v[0] = v[4];
    reference(v);
  };
  row.objective = [s](const Values& v) {
    double total = 0.0;
    for (std::int64_t r = 0; r < s.N; ++r) {
      if (v[3][at(r)] < 0.0) continue;
      Row const stats = row_of(s, v[4], v[3], r);
      total += std::log(stats.sum) + stats.most - stats.target;
    }
    return total;
  };
  row.gradients = {{0, 4}};
  return row;
}

}  // namespace

std::vector<OpCase> loss_cases() {
  std::vector<OpCase> rows;
  for (Shape const& s : std::vector<Shape>{{1, 1, 0, 1, 0},
                                           {0, 7, 0, 7, 0},
                                           {6, 37, 0, 37, 0},
                                           {11, 40, 33, 35, 5},
                                           {3, 5001, 0, 4999, 0}}) {
    rows.push_back(stats_case(s));
    rows.push_back(backward_case(s));
    rows.push_back(apart_case(s));
    if (s.V < 100) rows.push_back(slope_case(s));
  }
  for (std::int64_t const N : {0, 1, 53}) rows.push_back(rescale_case(N));
  for (std::int64_t const N : {0, 1, 53}) rows.push_back(loss_case(N));
  return rows;
}

}  // namespace copus::ops
