// The table's rows in bf16.
#include <algorithm>
#include <set>

#include "ops/op_cases.h"

namespace copus::ops {
namespace {

// Row statistics, logits, gradients of weights and angles are f32 whatever the compute type.
bool is_compute_type(const OpCase& row, const Operand& operand) {
  static const std::set<std::string> wide{"mean",         "rstd",       "lse",    "row_max",
                                          "row_sum",      "d_gain",     "d_bias", "d_table",
                                          "target_logit", "global_max", "losses", "logits"};
  if (operand.dtype != DType::f32 || wide.count(operand.name) > 0) return false;
  if (row.op == "rope") return operand.name != "table";
  // A product that accumulates is a weight's gradient.
  return row.op != "matmul" || operand.name != "out" || operand.role == Role::output;
}

OpCase in_bf16(const OpCase& row) {
  OpCase half = row;
  half.name += ", bf16";
  half.objective = nullptr;
  half.gradients.clear();
  for (Operand& operand : half.operands) {
    if (!is_compute_type(row, operand)) continue;
    operand.dtype = DType::bf16;
    for (double& value : operand.values) {
      value = static_cast<double>(math::from_bf16(math::to_bf16(static_cast<float>(value))));
    }
  }
  return half;
}

OpCase to_f32(const OpCase& matmul) {
  OpCase row = in_bf16(matmul);
  row.name += " to f32";
  row.operands[0].dtype = DType::f32;
  return row;
}

}  // namespace

const std::vector<OpCase>& bf16_op_cases() {
  static const std::vector<OpCase> cases = [] {
    static const std::set<std::string> f32_alone{"sum",
                                                 "square_sum",
                                                 "adamw",
                                                 "hash",
                                                 "cross_entropy_stats",
                                                 "cross_entropy_rescale",
                                                 "cross_entropy_loss"};
    std::vector<OpCase> rows;
    for (const OpCase& row : all_op_cases()) {
      if (f32_alone.count(row.op) > 0) continue;
      rows.push_back(in_bf16(row));
      if (row.op == "matmul" && row.operands[0].role == Role::output) rows.push_back(to_f32(row));
    }
    return rows;
  }();
  return cases;
}

}  // namespace copus::ops
