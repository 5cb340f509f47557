#include "ops/op_checks.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>

namespace copus::ops {
namespace {

double root_mean_square(const std::vector<double>& x) {
  double total = 0.0;
  for (double const value : x) total += value * value;
  return x.empty() ? 0.0 : std::sqrt(total / static_cast<double>(x.size()));
}

// As bits: a NaN equals itself.
bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * 8) == 0);
}

}  // namespace

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

std::string title(const OpCase& row) {
  return row.op + ": " + row.name;
}

void check_values(Backend& backend, const std::vector<OpCase>& rows) {
  for (const OpCase& row : rows) {
    Trial trial(backend, row);
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
        double tolerance = unit * std::max(typical, std::abs(want[o][i]));
        // What is computed in f32 is rounded once, to the nearest of 8 significant bits.
        if (operand.dtype == DType::bf16)
          tolerance += std::ldexp(std::abs(want[o][i]) + tolerance, -8);
        if (std::abs(got[i] - want[o][i]) <= tolerance) continue;
        FAIL_CHECK(title(row) << ", " << operand.name << "[" << i << "]: " << got[i]
                              << " instead of " << want[o][i] << ", tolerance " << tolerance);
        break;
      }
    }
  }
}

void check_guards(Backend& backend, const std::vector<OpCase>& rows) {
  for (const OpCase& row : rows) {
    Trial trial(backend, row);
    trial.run();
    for (std::size_t o = 0; o < row.operands.size(); ++o) {
      INFO(title(row) << ", " << row.operands[o].name);
      CHECK(trial.intact(o));
    }
  }
}

void check_nan(Backend& backend, const std::vector<OpCase>& rows) {
  double const nan = std::numeric_limits<double>::quiet_NaN();
  for (const OpCase& original : rows) {
    for (std::size_t o = 0; o < original.operands.size(); ++o) {
      if (original.operands[o].dtype == DType::i32 || original.operands[o].values.empty()) continue;
      OpCase row = original;
      std::vector<double>& poisoned = row.operands[o].values;
      poisoned[poisoned.size() / 2] = nan;
      Trial trial(backend, row);
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

void check_repeats(Backend& backend, const std::vector<OpCase>& rows) {
  for (const OpCase& row : rows) {
    Trial once(backend, row), again(backend, row);
    once.run();
    again.run();
    for (std::size_t o = 0; o < row.operands.size(); ++o) {
      INFO(title(row) << ", " << row.operands[o].name);
      CHECK(same_bits(once.values(o), again.values(o)));
    }
  }
}

}  // namespace copus::ops
