#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "ops/op_cases.h"

namespace copus::ops {
namespace {

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

// Ids from two below the first row to two above the last: other ranks' rows among them.
std::vector<double> ids_around(std::int64_t N, std::int64_t V, std::int64_t first_row) {
  std::vector<double> values = random_values("ids", N, static_cast<double>(first_row) - 2.0,
                                             static_cast<double>(first_row + V) + 2.0);
  for (double& value : values) value = std::floor(std::max(value, 0.0));
  return values;
}

// body(row of N, row of the table) where the row is ours.
template <class Body>
void for_own_rows(const std::vector<double>& id, std::int64_t V, std::int64_t first_row,
                  const Body& body) {
  for (std::size_t r = 0; r < id.size(); ++r) {
    std::int64_t const row = static_cast<std::int64_t>(id[r]) - first_row;
    if (row >= 0 && row < V) body(static_cast<std::int64_t>(r), row);
  }
}

OpCase embedding_case(std::int64_t N, std::int64_t V, std::int64_t C, std::int64_t first_row) {
  OpCase row;
  row.op = "embedding";
  row.name = fmt::format("({}, {}) of {} rows from {}", N, C, V, first_row);
  row.operands = {output("out", {N, C}), ids("ids", ids_around(N, V, first_row)),
                  input("table", {V, C})};
  row.run = [=](Backend& backend, const Views& v) {
    backend.embedding(v[0], v[1], v[2], first_row);
  };
  row.reference = [=](Values& v) {
    std::fill(v[0].begin(), v[0].end(), 0.0);
    for_own_rows(v[1], V, first_row, [&](std::int64_t r, std::int64_t from) {
      for (std::int64_t c = 0; c < C; ++c) v[0][at(r * C + c)] = v[2][at(from * C + c)];
    });
  };
  return row;
}

OpCase embedding_backward_case(std::int64_t N, std::int64_t V, std::int64_t C,
                               std::int64_t first_row) {
  OpCase row;
  row.op = "embedding_backward";
  row.name = fmt::format("({}, {}) of {} rows from {}", N, C, V, first_row);
  row.operands = {inout("d_table", {V, C}, static_cast<double>(N + 1)),
                  ids("ids", ids_around(N, V, first_row)), input("d_out", {N, C})};
  row.run = [=](Backend& backend, const Views& v) {
    backend.embedding_backward(v[0], v[1], v[2], first_row);
  };
  row.reference = [=](Values& v) {
    for_own_rows(v[1], V, first_row, [&](std::int64_t r, std::int64_t to) {
      for (std::int64_t c = 0; c < C; ++c) v[0][at(to * C + c)] += v[2][at(r * C + c)];
    });
  };
  // d_table stands for the table: the forward is linear, so its gradient is the same everywhere.
  row.objective = [=](const Values& v) {
    double total = 0.0;
    for_own_rows(v[1], V, first_row, [&](std::int64_t r, std::int64_t from) {
      for (std::int64_t c = 0; c < C; ++c) total += v[2][at(r * C + c)] * v[0][at(from * C + c)];
    });
    return total;
  };
  row.gradients = {{0, 0}};
  return row;
}

OpCase add_positions_case(std::int64_t B, std::int64_t T, std::int64_t C, std::int64_t first) {
  OpCase row;
  row.op = "add_positions";
  row.name = fmt::format("({}, {}, {}) from {}", B, T, C, first);
  row.operands = {inout("x", {B, T, C}), input("table", {first + T + 2, C})};
  row.run = [=](Backend& backend, const Views& v) { backend.add_positions(v[0], v[1], first); };
  row.reference = [=](Values& v) {
    for (std::int64_t i = 0; i < B * T * C; ++i) {
      v[0][at(i)] += v[1][at((first + i / C % T) * C + i % C)];
    }
  };
  return row;
}

OpCase positions_backward_case(std::int64_t B, std::int64_t T, std::int64_t C, std::int64_t first) {
  OpCase row;
  row.op = "positions_backward";
  row.name = fmt::format("({}, {}, {}) from {}", B, T, C, first);
  row.operands = {inout("d_table", {first + T + 2, C}, static_cast<double>(B + 1)),
                  input("d_x", {B, T, C})};
  row.run = [=](Backend& backend, const Views& v) {
    backend.positions_backward(v[0], v[1], first);
  };
  row.reference = [=](Values& v) {
    for (std::int64_t i = 0; i < B * T * C; ++i) {
      v[0][at((first + i / C % T) * C + i % C)] += v[1][at(i)];
    }
  };
  row.objective = [=](const Values& v) {
    double total = 0.0;
    for (std::int64_t i = 0; i < B * T * C; ++i) {
      total += v[1][at(i)] * v[0][at((first + i / C % T) * C + i % C)];
    }
    return total;
  };
  row.gradients = {{0, 0}};
  return row;
}

}  // namespace

std::vector<OpCase> embedding_cases() {
  return {embedding_case(1, 1, 1, 0),
          embedding_case(0, 3, 4, 0),
          embedding_case(37, 11, 33, 0),
          embedding_case(20, 5, 70, 7),
          embedding_backward_case(1, 1, 1, 0),
          embedding_backward_case(0, 3, 4, 0),
          embedding_backward_case(50, 7, 33, 0),
          embedding_backward_case(40, 5, 70, 7),
          embedding_backward_case(300, 7, 8, 0),
          add_positions_case(1, 1, 1, 0),
          add_positions_case(0, 2, 3, 0),
          add_positions_case(3, 5, 37, 2),
          positions_backward_case(1, 1, 1, 0),
          positions_backward_case(0, 2, 3, 0),
          positions_backward_case(4, 5, 37, 2)};
}

}  // namespace copus::ops
