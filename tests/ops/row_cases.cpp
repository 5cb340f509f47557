// Elementwise operations: add, dropout, GELU, SwiGLU.
#include <fmt/core.h>

#include <array>
#include <cmath>

#include "ops/op_cases.h"

namespace copus::ops {
namespace {

double gelu(double x) {
  return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
}
double gelu_slope(double x) {
  double const u = std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x), t = std::tanh(u);
  return 0.5 * (1.0 + t) +
         0.5 * x * (1.0 - t * t) * std::sqrt(2.0 / M_PI) * (1.0 + 3.0 * 0.044715 * x * x);
}
double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}
double silu(double x) {
  return x * sigmoid(x);
}

std::string shape(std::int64_t N, std::int64_t F, std::int64_t gap) {
  return fmt::format("({}, {}){}", N, F, gap > 0 ? " strided" : "");
}

Operand wide(std::string name, std::int64_t N, std::int64_t F, std::int64_t gap) {
  Operand operand = input(std::move(name), {N, F}, gap);
  operand.values = random_values(operand.name, N * F, -6.0, 6.0);
  return operand;
}

OpCase add_case(std::int64_t N, std::int64_t C, std::int64_t gap, bool in_place) {
  OpCase row;
  row.op = "add";
  row.name = shape(N, C, gap) + (in_place ? " in place" : "");
  row.operands = {in_place ? inout("out", {N, C}, 1.0, gap) : output("out", {N, C}, 1.0, gap),
                  input("a", {N, C}, gap), input("b", {N, C})};
  row.run = [=](Backend& backend, const Views& v) {
    backend.add(v[0], in_place ? v[0] : v[1], v[2]);
  };
  row.reference = [=](Values& v) {
    for (std::size_t i = 0; i < v[0].size(); ++i) {
      v[0][i] = (in_place ? v[0][i] : v[1][i]) + v[2][i];
    }
  };
  return row;
}

OpCase dropout_case(std::int64_t N, std::int64_t C, float p, std::uint64_t first) {
  Dropout const options{p, stream_of({7, RngPurpose::dropout, 3, 2}), first};
  OpCase row;
  row.op = "dropout";
  row.name = fmt::format("({}, {}) p = {}, from element {}", N, C, p, first);
  row.operands = {inout("x", {N, C})};
  row.run = [=](Backend& backend, const Views& v) { backend.dropout(v[0], options); };
  row.reference = [=](Values& v) {
    for (std::size_t i = 0; i < v[0].size(); ++i) {
      double const unit = random_bits(options.stream, first + i) / 4294967296.0;
      v[0][i] *= unit >= static_cast<double>(p) ? 1.0 / (1.0 - static_cast<double>(p)) : 0.0;
    }
  };
  return row;
}

OpCase gelu_case(std::int64_t N, std::int64_t C, std::int64_t gap) {
  OpCase row;
  row.op = "gelu";
  row.name = shape(N, C, gap);
  row.operands = {output("out", {N, C}, 1.0, gap), wide("x", N, C, gap)};
  row.run = [](Backend& backend, const Views& v) { backend.gelu(v[0], v[1]); };
  row.reference = [](Values& v) {
    for (std::size_t i = 0; i < v[0].size(); ++i) v[0][i] = gelu(v[1][i]);
  };
  // The exponential's argument, up to 20, carries a rounding of its own size.
  row.roundings = 16.0;
  return row;
}

OpCase gelu_backward_case(std::int64_t N, std::int64_t C, std::int64_t gap, bool in_place) {
  OpCase row;
  row.op = "gelu_backward";
  row.name = shape(N, C, gap) + (in_place ? " in place" : "");
  row.operands = {in_place ? inout("d_x", {N, C}, 1.0, gap) : output("d_x", {N, C}, 1.0, gap),
                  input("d_out", {N, C}, gap), wide("x", N, C, gap)};
  row.run = [=](Backend& backend, const Views& v) {
    backend.gelu_backward(v[0], in_place ? v[0] : v[1], v[2]);
  };
  row.reference = [=](Values& v) {
    for (std::size_t i = 0; i < v[0].size(); ++i) {
      v[0][i] = (in_place ? v[0][i] : v[1][i]) * gelu_slope(v[2][i]);
    }
  };
  if (!in_place) {
    row.objective = [](const Values& v) {
      double total = 0.0;
      for (std::size_t i = 0; i < v[1].size(); ++i) total += v[1][i] * gelu(v[2][i]);
      return total;
    };
    row.gradients = {{0, 2}};
  }
  row.roundings = 16.0;
  return row;
}

OpCase swiglu_case(std::int64_t N, std::int64_t F, std::int64_t gap) {
  OpCase row;
  row.op = "swiglu";
  row.name = shape(N, F, gap);
  row.operands = {output("out", {N, F}), wide("gate", N, F, gap), input("up", {N, F}, gap)};
  row.run = [](Backend& backend, const Views& v) { backend.swiglu(v[0], v[1], v[2]); };
  row.reference = [](Values& v) {
    for (std::size_t i = 0; i < v[0].size(); ++i) v[0][i] = silu(v[1][i]) * v[2][i];
  };
  row.roundings = 8.0;
  return row;
}

OpCase swiglu_backward_case(std::int64_t N, std::int64_t F, std::int64_t gap) {
  OpCase row;
  row.op = "swiglu_backward";
  row.name = shape(N, F, gap);
  row.operands = {output("d_gate", {N, F}, 1.0, gap), output("d_up", {N, F}, 1.0, gap),
                  input("d_out", {N, F}), wide("gate", N, F, gap), input("up", {N, F}, gap)};
  row.run = [](Backend& backend, const Views& v) {
    backend.swiglu_backward(v[0], v[1], v[2], v[3], v[4]);
  };
  row.reference = [](Values& v) {
    for (std::size_t i = 0; i < v[0].size(); ++i) {
      double const s = sigmoid(v[3][i]);
      v[0][i] = v[2][i] * v[4][i] * s * (1.0 + v[3][i] * (1.0 - s));
      v[1][i] = v[2][i] * silu(v[3][i]);
    }
  };
  row.objective = [](const Values& v) {
    double total = 0.0;
    for (std::size_t i = 0; i < v[2].size(); ++i) total += v[2][i] * silu(v[3][i]) * v[4][i];
    return total;
  };
  row.gradients = {{0, 3}, {1, 4}};
  row.roundings = 8.0;
  return row;
}

}  // namespace

std::vector<OpCase> row_cases() {
  std::vector<OpCase> rows;
  for (auto const& [N, C, gap] : std::vector<std::array<std::int64_t, 3>>{
           {1, 1, 0}, {0, 3, 0}, {7, 37, 0}, {5, 33, 9}, {3, 17000, 0}}) {
    rows.push_back(add_case(N, C, gap, false));
    rows.push_back(add_case(N, C, gap, true));
    rows.push_back(gelu_case(N, C, gap));
    rows.push_back(swiglu_case(N, C, gap));
    if (N * C > 1000) continue;  // finite differences take one evaluation an element
    rows.push_back(gelu_backward_case(N, C, gap, false));
    rows.push_back(gelu_backward_case(N, C, gap, true));
    rows.push_back(swiglu_backward_case(N, C, gap));
  }
  for (std::uint64_t const first : {0ull, 3ull, 1ull << 40}) {
    rows.push_back(dropout_case(1, 1, 0.5f, first));
    rows.push_back(dropout_case(7, 37, 0.1f, first));
    rows.push_back(dropout_case(2, 17000, 0.3f, first));
    rows.push_back(dropout_case(3, 5, 0.0f, first));
    rows.push_back(dropout_case(0, 5, 0.1f, first));
  }
  return rows;
}

}  // namespace copus::ops
