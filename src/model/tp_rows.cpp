#include "model/tp_rows.h"

namespace copus {

std::int64_t TpRows::first_own(std::int64_t rows) const {
  return sequence_parallel ? rows / tp.size() * tp.rank() : 0;
}

TensorView TpRows::own(const TensorView& x) const {
  return sequence_parallel ? x.slice(0, first_own(x.size[0]), x.size[0] / tp.size()) : x;
}

void TpRows::gather(const TensorView& x) const {
  // tp: the next product needs every row.
  if (sequence_parallel) tp.all_gather(x, own(x));
}

void TpRows::sum(const TensorView& x) const {
  // tp: each rank multiplied its own slice of the inner dimension.
  if (sequence_parallel) {
    tp.reduce_scatter(own(x), x);
  } else {
    tp.all_reduce(x, ReduceOp::sum);
  }
}

}  // namespace copus
