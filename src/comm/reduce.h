// The one place where ranks' values are added up: in rank order, so that the result is the same
// bits everywhere. bf16 values are added up in fp32 and rounded once, at the end.
#pragma once
#include <algorithm>
#include <vector>

#include "copus/comm/communicator.h"

namespace copus {

template <class T>
T fold(T a, T b, ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return a + b;
    case ReduceOp::max:
      return a > b || a != a ? a : b;  // a NaN stays
    case ReduceOp::min:
      return a < b || a != a ? a : b;
  }
  return a;
}

// Elements [begin, end) of all buffers become their reduction.
void fold_into_all(const std::vector<void*>& buffers, DType dtype, ReduceOp op, std::int64_t begin,
                   std::int64_t end);
// out (count elements) = the sum over buffers of elements [begin, begin + count); out may be such a
// stretch itself.
void fold_to(void* out, const std::vector<void*>& buffers, DType dtype, std::int64_t begin,
             std::int64_t count);

// bf16 values as the fp32 ones they are, and fp32 ones rounded to bf16.
void widen(float* out, const Bf16* x, std::int64_t count);
void round_to(Bf16* out, const float* x, std::int64_t count);

// x[i] = fold(x[i], y[i]) for `count` elements.
void fold_to_first(void* x, const void* y, DType dtype, ReduceOp op, std::int64_t count);

}  // namespace copus
