// Every check here walks the whole table of op_cases.h.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "ops/op_checks.h"

namespace copus::ops {

TEST_CASE("every operation gives what double arithmetic gives, within its roundings") {
  auto const backend = make_cpu_backend(2);
  check_values(*backend);
}

TEST_CASE("in bf16 every operation gives what double arithmetic gives, rounded once") {
  // With the processor's own products, where it has them, and with those made of fp32 ones.
  for (bool widens : {false, true}) {
    auto const backend = make_cpu_backend(2, widens);
    check_values(*backend, bf16_op_cases());
    check_guards(*backend, bf16_op_cases());
    check_nan(*backend, bf16_op_cases());
    check_repeats(*backend, bf16_op_cases());
  }
}

TEST_CASE("no operation writes outside its outputs") {
  auto const backend = make_cpu_backend(2);
  check_guards(*backend);
}

// With the comparison above: the operation equals its reference, and the reference is the gradient.
TEST_CASE("every backward operation is the derivative of its forward one") {
  // A central difference errs by h^2 f''' and by eps |f| / h: the best h is about eps^(1/3), and
  // the error then about eps^(2/3), 4e-11, of f; another factor for the number of terms.
  double const h = std::cbrt(std::numeric_limits<double>::epsilon());
  int checked = 0;
  for (const OpCase& row : all_op_cases()) {
    if (!row.objective) continue;
    Values const want = expected(row);
    Values base;
    for (const Operand& operand : row.operands) {
      base.push_back(operand.values);
      if (operand.role == Role::output) base.back().resize(want[base.size() - 1].size());
    }
    double const size = std::abs(row.objective(base)) + 1.0;
    for (auto const& [gradient, variable] : row.gradients) {
      bool const adds = row.operands[gradient].role == Role::inout;
      for (std::size_t i = 0; i < want[gradient].size(); ++i) {
        Values moved = base;
        moved[variable][i] = base[variable][i] + h;
        double const above = row.objective(moved);
        moved[variable][i] = base[variable][i] - h;
        double const slope = (above - row.objective(moved)) / (2.0 * h);
        double const stated = want[gradient][i] - (adds ? base[gradient][i] : 0.0);
        double const tolerance = 1e3 * h * h * size;
        if (std::abs(slope - stated) <= tolerance) continue;
        FAIL_CHECK(title(row) << ", " << row.operands[gradient].name << "[" << i << "]: " << stated
                              << " but the slope is " << slope);
        break;
      }
      ++checked;
    }
  }
  CHECK(checked > 20);
}

TEST_CASE("L14: a NaN in an input reaches every output element that depends on it") {
  auto const backend = make_cpu_backend(2);
  check_nan(*backend);
}

TEST_CASE("any number of threads gives the same bits, matrix products excepted") {
  auto const one = make_cpu_backend(1);
  std::vector<OpCase> rows = all_op_cases();
  rows.insert(rows.end(), bf16_op_cases().begin(), bf16_op_cases().end());
  for (int const threads : {2, 3, 5}) {
    auto const many = make_cpu_backend(threads);
    for (const OpCase& row : rows) {
      if (row.op == "matmul") continue;  // the library splits its sums as it sees fit
      Trial alone(*one, row), together(*many, row);
      alone.run();
      together.run();
      for (std::size_t o = 0; o < row.operands.size(); ++o) {
        INFO(title(row) << ", " << row.operands[o].name << ", threads " << threads);
        CHECK(alone.values(o) == together.values(o));
      }
    }
  }
}

}  // namespace copus::ops
