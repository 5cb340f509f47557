#include <fmt/core.h>

#include <cmath>
#include <cstring>

#include "ops/op_cases.h"

namespace copus::ops {
namespace {

OpCase sum_case(std::int64_t n, std::int64_t rows_of_it, std::int64_t gap, bool squares) {
  OpCase row;
  row.op = squares ? "square_sum" : "sum";
  row.name = fmt::format("({}, {}){}", rows_of_it, n, gap > 0 ? " strided" : "");
  // The sum itself is fp64; what is left is the rounding of the one float it is kept in.
  row.operands = {output("result", {1}), input("x", {rows_of_it, n}, gap)};
  row.run = [squares](Backend& backend, const Views& v) {
    auto const result = static_cast<float>(squares ? backend.square_sum(v[1]) : backend.sum(v[1]));
    backend.upload(v[0], &result);
  };
  row.reference = [squares](Values& v) {
    v[0][0] = 0.0;
    for (double const x : v[1]) v[0][0] += squares ? x * x : x;
  };
  return row;
}

// The 64 bits as four numbers that a float holds exactly.
OpCase hash_case(std::int64_t rows_of_it, std::int64_t n, std::int64_t gap) {
  HashPlace const place{1'000'003, 777, 0x0123456789abcdefull};
  OpCase row;
  row.op = "hash";
  row.name = fmt::format("({}, {}){}", rows_of_it, n, gap > 0 ? " strided" : "");
  row.operands = {output("quarters", {4}), input("x", {rows_of_it, n}, gap)};
  row.roundings = 0.0;
  row.run = [place](Backend& backend, const Views& v) {
    std::uint64_t const hash = backend.hash(v[1], place);
    float quarters[4];
    for (int q = 0; q < 4; ++q) quarters[q] = static_cast<float>(hash >> (16 * q) & 0xffffu);
    backend.upload(v[0], quarters);
  };
  row.reference = [place, n](Values& v) {
    std::uint64_t hash = 0;
    for (std::size_t i = 0; i < v[1].size(); ++i) {
      std::uint64_t const r = i / static_cast<std::size_t>(n), c = i % static_cast<std::size_t>(n);
      auto const value = static_cast<float>(v[1][i]);
      std::uint32_t bits = 0;
      std::memcpy(&bits, &value, sizeof bits);
      hash += math::element_hash(bits, place.first + r * place.pitch + c, place.salt);
    }
    for (int q = 0; q < 4; ++q)
      v[0][static_cast<std::size_t>(q)] = static_cast<double>(hash >> (16 * q) & 0xffffu);
  };
  return row;
}

// `copy`: the type in which the new weights are wanted once more; i32 for none.
OpCase adamw_case(std::int64_t n, float weight_decay, DType copy = DType::i32) {
  float const grad_scale = 0.37f;
  math::AdamScalars const s{1e-2f, 0.9f, 0.95f, 1e-8f, weight_decay, 0.271f, 0.142625f};
  OpCase row;
  row.op = "adamw";
  row.name = fmt::format("({}) decay {}", n, weight_decay);
  Operand v_in = inout("v", {n});
  v_in.values = random_values("v", n, 0.0, 1.0);
  row.operands = {inout("weight", {n}), inout("m", {n}), v_in, input("grad", {n})};
  bool const copies = copy != DType::i32;
  if (copies) {
    row.name += fmt::format(" copy {}", name_of(copy));
    row.operands.push_back(output("copy", {n}));
    row.operands.back().dtype = copy;
  }
  row.run = [=](Backend& backend, const Views& v) {
    backend.adamw(v[0], v[1], v[2], v[3], grad_scale, s, copies ? v[4] : TensorView{});
  };
  row.reference = [=](Values& v) {
    auto const d = [](float x) { return static_cast<double>(x); };
    for (std::size_t i = 0; i < v[0].size(); ++i) {
      double const g = v[3][i] * d(grad_scale);
      v[1][i] = d(s.beta1) * v[1][i] + (1.0 - d(s.beta1)) * g;
      v[2][i] = d(s.beta2) * v[2][i] + (1.0 - d(s.beta2)) * g * g;
      double const step =
          v[1][i] / d(s.correction1) / (std::sqrt(v[2][i] / d(s.correction2)) + d(s.eps));
      v[0][i] -= d(s.lr) * (step + d(s.weight_decay) * v[0][i]);
      if (copies) v[4][i] = v[0][i];
    }
  };
  return row;
}

}  // namespace

std::vector<OpCase> optimizer_cases() {
  std::vector<OpCase> rows;
  for (bool const squares : {false, true}) {
    rows.push_back(sum_case(1, 1, 0, squares));
    rows.push_back(sum_case(0, 1, 0, squares));
    rows.push_back(sum_case(100003, 1, 0, squares));
    rows.push_back(sum_case(1100000, 1, 0, squares));
    rows.push_back(sum_case(37, 9, 5, squares));
  }
  rows.push_back(hash_case(1, 1, 0));
  rows.push_back(hash_case(0, 5, 0));
  rows.push_back(hash_case(1, 100003, 0));
  rows.push_back(hash_case(37, 9, 5));
  for (float const decay : {0.0f, 0.1f}) {
    rows.push_back(adamw_case(1, decay));
    rows.push_back(adamw_case(0, decay));
    rows.push_back(adamw_case(40003, decay));
    rows.push_back(adamw_case(40003, decay, DType::f32));
    rows.push_back(adamw_case(40003, decay, DType::bf16));
  }
  return rows;
}

}  // namespace copus::ops
