#include "ops/op_cases.h"

#include <numeric>

namespace copus::ops {

std::int64_t count_of(const std::vector<std::int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
}

std::vector<double> random_values(const std::string& name, std::int64_t count, double low,
                                  double high) {
  // FNV-1a: tensors of different names hold different numbers.
  std::uint64_t seed = 0xcbf29ce484222325ull;
  for (char const c : name) seed = (seed ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  RngStream const stream = stream_of({seed, RngPurpose::test, 0, 0});
  std::vector<double> values(static_cast<std::size_t>(count));
  std::uint64_t index = 0;
  for (double& value : values) {
    double const unit = static_cast<double>(random_bits(stream, index++)) / 4294967296.0;
    value = static_cast<double>(static_cast<float>(low + (high - low) * unit));
  }
  return values;
}

Operand input(std::string name, std::vector<std::int64_t> sizes, std::int64_t gap) {
  std::vector<double> values = random_values(name, count_of(sizes));
  return {std::move(name), Role::input, std::move(sizes), std::move(values), DType::f32, gap, 1.0};
}

Operand output(std::string name, std::vector<std::int64_t> sizes, double terms, std::int64_t gap) {
  return {std::move(name), Role::output, std::move(sizes), {}, DType::f32, gap, terms};
}

Operand inout(std::string name, std::vector<std::int64_t> sizes, double terms, std::int64_t gap) {
  Operand operand = input(std::move(name), std::move(sizes), gap);
  operand.role = Role::inout;
  operand.terms = terms;
  return operand;
}

Operand with_values(Operand operand, std::vector<double> values) {
  operand.values = std::move(values);
  return operand;
}

Operand ids(std::string name, std::vector<double> values) {
  std::vector<std::int64_t> sizes{static_cast<std::int64_t>(values.size())};
  return {std::move(name), Role::input, std::move(sizes), std::move(values), DType::i32, 0, 1.0};
}

const std::vector<OpCase>& all_op_cases() {
  static const std::vector<OpCase> cases = [] {
    std::vector<OpCase> all;
    for (auto* group : {matmul_cases, embedding_cases, row_cases, norm_cases, attention_cases,
                        loss_cases, optimizer_cases}) {
      for (OpCase& row : group()) all.push_back(std::move(row));
    }
    return all;
  }();
  return cases;
}

}  // namespace copus::ops
