#include <algorithm>

#include "backend/cpu/column_sums.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/rows.h"

namespace copus {
namespace {

// A library wants a leading dimension of at least the width, also of a single row.
std::int64_t leading(const TensorView& x) {
  return std::max({x.stride[0], x.size[1], std::int64_t{1}});
}

}  // namespace

void CpuBackend::matmul(TensorView out, const TensorView& a, const TensorView& b,
                        const MatmulOptions& options, const TensorView& bias) {
  COPUS_CHECK(out.dims == 2 && a.dims == 2 && b.dims == 2, "matrices");
  COPUS_CHECK(out.dtype == DType::f32 && a.dtype == DType::f32 && b.dtype == DType::f32, "f32");
  std::int64_t const m = options.transpose_a ? a.size[1] : a.size[0];
  std::int64_t const k = options.transpose_a ? a.size[0] : a.size[1];
  std::int64_t const n = options.transpose_b ? b.size[0] : b.size[1];
  COPUS_CHECK((options.transpose_b ? b.size[1] : b.size[0]) == k, "inner sizes of a product agree");
  COPUS_CHECK(out.size[0] == m && out.size[1] == n, "the output has the product's sizes");
  COPUS_CHECK(!bias || (bias.dims == 1 && bias.size[0] == n), "one bias a column");
  if (m == 0 || n == 0) return;
  GemmShape const shape{options.transpose_a, options.transpose_b, m,           n, k,
                        leading(a),          leading(b),          leading(out)};
  if (k == 0) {  // a product over nothing is zero; libraries differ there
    for (std::int64_t i = 0; i < m; ++i) {
      float* const row = out.ptr<float>() + i * shape.ldc;
      for (std::int64_t j = 0; j < n; ++j) {
        row[j] = (options.accumulate ? row[j] : 0.0f) + (bias ? bias.ptr<float>()[j] : 0.0f);
      }
    }
    return;
  }
  gemm_.run(shape, out.ptr<float>(), a.ptr<float>(), b.ptr<float>(),
            bias ? bias.ptr<float>() : nullptr, options.accumulate);
}

void CpuBackend::column_sum(TensorView d_bias, const TensorView& d_out) {
  Rows const x = rows_of(d_out);
  COPUS_CHECK(d_bias.dims == 1 && d_bias.size[0] == x.width, "one sum a column");
  ColumnSums sums(x.rows, x.width, 1);
  sums.partials = scratch(sums.floats());
  parallel_for(threads_, sums.blocks, [&](int, std::int64_t block) {
    float* const partial = sums.start(block, 0);
    for (std::int64_t r = sums.first(block); r < sums.last(block); ++r) {
      const float* const from = x.row(r);
#pragma omp simd
      for (std::int64_t c = 0; c < x.width; ++c) partial[c] += from[c];
    }
  });
  sums.add_to(threads_, d_bias.ptr<float>(), 0);
}

}  // namespace copus
