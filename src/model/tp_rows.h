// How rows of the residual stream lie over the ranks of a tensor-parallel group: each rank holds
// all of them, or under sequence parallelism its R = N / tp.
#pragma once
#include "copus/comm/communicator.h"
#include "copus/parallel/layout.h"

namespace copus {

struct TpRows {
  Communicator& tp;
  bool sequence_parallel = false;

  // The rows of a full (N, C) view that belong to this rank.
  TensorView own(const TensorView& x) const;
  std::int64_t first_own(std::int64_t rows) const;  // their first index among `rows`
  // After this every rank has all rows; before it has at least its own.
  void gather(const TensorView& x) const;
  // Adds the ranks' partial values of all rows; afterwards own(x) is whole (without sequence
  // parallelism: all of x).
  void sum(const TensorView& x) const;
};

}  // namespace copus
