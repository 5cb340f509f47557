// The one table of operations. A row names a Backend operation, its operands with odd sizes, how to
// run it and what it must give in double. Every check walks this table: comparison, finite
// differences, guard bands, NaN, thread counts, and the one that every operation has a row.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "copus/backend/backend.h"

namespace copus::ops {

enum class Role { input, output, inout };  // output: overwritten whatever was there before

struct Operand {
  std::string name;
  Role role = Role::input;
  std::vector<std::int64_t> sizes;
  std::vector<double> values;  // each one exact in dtype; empty for outputs
  DType dtype = DType::f32;
  std::int64_t gap =
      0;  // elements between rows (of tokens in (B, T, heads, D)) that belong to others
  double terms = 1.0;  // how many terms of a sum stand behind one element of an output
};

// Values of all operands of a row, contiguous, in the operands' order.
using Values = std::vector<std::vector<double>>;
using Views = std::vector<TensorView>;

struct OpCase {
  std::string op;    // the Backend function's name
  std::string name;  // what is special about this row
  std::vector<Operand> operands;
  std::function<void(Backend&, const Views&)> run;
  std::function<void(Values&)> reference;  // fills outputs, adds to inouts
  // Roundings of the scalar formula. An element may be off by
  // roundings * eps * sqrt(terms) * max(|element|, root mean square of the tensor).
  double roundings = 4.0;

  // For a backward operation: what it is the gradient of, Sum d_out * forward(inputs), and which
  // operand holds the gradient with respect to which.
  std::function<double(const Values&)> objective;
  std::vector<std::pair<std::size_t, std::size_t>> gradients;
};

std::vector<OpCase> matmul_cases();
std::vector<OpCase> embedding_cases();
std::vector<OpCase> row_cases();
std::vector<OpCase> norm_cases();
std::vector<OpCase> attention_cases();
std::vector<OpCase> loss_cases();
std::vector<OpCase> optimizer_cases();
const std::vector<OpCase>& all_op_cases();
// The rows of operations on activations and weights once more, those operands in bf16: for the
// backends that take it.
const std::vector<OpCase>& bf16_op_cases();

// ---- for writing rows -------------------------------------------------------------------------
std::int64_t count_of(const std::vector<std::int64_t>& sizes);
// Uniform in [low, high), rounded to float, a pure function of the name and the index.
std::vector<double> random_values(const std::string& name, std::int64_t count, double low = -1.0,
                                  double high = 1.0);
Operand input(std::string name, std::vector<std::int64_t> sizes, std::int64_t gap = 0);
Operand output(std::string name, std::vector<std::int64_t> sizes, double terms = 1.0,
               std::int64_t gap = 0);
Operand inout(std::string name, std::vector<std::int64_t> sizes, double terms = 1.0,
              std::int64_t gap = 0);
Operand with_values(Operand operand, std::vector<double> values);
Operand ids(std::string name, std::vector<double> values);

}  // namespace copus::ops
