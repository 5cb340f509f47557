// Every check here walks the whole table of op_cases.h.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "ops/guarded.h"
#include "ops/op_cases.h"

namespace copus::ops {
namespace {

// One row on one backend: its operands' memory, and what the row's reference says.
class Trial {
 public:
  Trial(Backend& backend, const OpCase& row) : backend_(backend), row_(row) {
    for (const Operand& operand : row.operands) {
      memory_.emplace_back(backend, operand);
      views_.push_back(memory_.back().view());
    }
  }
  void run() {
    row_.run(backend_, views_);
    backend_.synchronize();
  }
  bool intact(std::size_t operand) const { return memory_[operand].intact(backend_); }
  std::vector<double> values(std::size_t operand) const {
    return memory_[operand].values(backend_);
  }

 private:
  Backend& backend_;
  const OpCase& row_;
  std::vector<Guarded> memory_;
  Views views_;
};

Values expected(const OpCase& row) {
  Values values;
  for (const Operand& operand : row.operands) {
    values.push_back(operand.role == Role::output
                         ? std::vector<double>(static_cast<std::size_t>(count_of(operand.sizes)))
                         : operand.values);
  }
  row.reference(values);
  return values;
}

double root_mean_square(const std::vector<double>& x) {
  double total = 0.0;
  for (double const value : x) total += value * value;
  return x.empty() ? 0.0 : std::sqrt(total / static_cast<double>(x.size()));
}

std::string title(const OpCase& row) {
  return row.op + ": " + row.name;
}

}  // namespace

TEST_CASE("every operation gives what double arithmetic gives, within its roundings") {
  auto const backend = make_cpu_backend(2);
  for (const OpCase& row : all_op_cases()) {
    Trial trial(*backend, row);
    trial.run();
    Values const want = expected(row);
    for (std::size_t o = 0; o < row.operands.size(); ++o) {
      const Operand& operand = row.operands[o];
      if (operand.role == Role::input) continue;
      std::vector<double> const got = trial.values(o);
      double const typical = root_mean_square(want[o]);
      double const unit =
          row.roundings * std::numeric_limits<float>::epsilon() * std::sqrt(operand.terms);
      for (std::size_t i = 0; i < got.size(); ++i) {
        double const tolerance = unit * std::max(typical, std::abs(want[o][i]));
        if (std::abs(got[i] - want[o][i]) <= tolerance) continue;
        FAIL_CHECK(title(row) << ", " << operand.name << "[" << i << "]: " << got[i]
                              << " instead of " << want[o][i] << ", tolerance " << tolerance);
        break;
      }
    }
  }
}

TEST_CASE("no operation writes outside its outputs") {
  auto const backend = make_cpu_backend(2);
  for (const OpCase& row : all_op_cases()) {
    Trial trial(*backend, row);
    trial.run();
    for (std::size_t o = 0; o < row.operands.size(); ++o) {
      INFO(title(row) << ", " << row.operands[o].name);
      CHECK(trial.intact(o));
    }
  }
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
  double const nan = std::numeric_limits<double>::quiet_NaN();
  for (const OpCase& original : all_op_cases()) {
    for (std::size_t o = 0; o < original.operands.size(); ++o) {
      if (original.operands[o].dtype != DType::f32 || original.operands[o].values.empty()) continue;
      OpCase row = original;
      std::vector<double>& poisoned = row.operands[o].values;
      poisoned[poisoned.size() / 2] = nan;
      Trial trial(*backend, row);
      trial.run();
      Values const want = expected(row);
      for (std::size_t out = 0; out < row.operands.size(); ++out) {
        if (row.operands[out].role == Role::input) continue;
        std::vector<double> const got = trial.values(out);
        std::size_t lost = 0;
        for (std::size_t i = 0; i < got.size(); ++i) {
          lost += std::isnan(want[out][i]) && !std::isnan(got[i]) ? 1 : 0;
        }
        INFO(title(row) << ": NaN in " << row.operands[o].name << ", " << row.operands[out].name);
        CHECK(lost == 0);
      }
    }
  }
}

TEST_CASE("any number of threads gives the same bits, matrix products excepted") {
  auto const one = make_cpu_backend(1);
  for (int const threads : {2, 3, 5}) {
    auto const many = make_cpu_backend(threads);
    for (const OpCase& row : all_op_cases()) {
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
