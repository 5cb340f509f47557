#include <algorithm>

#include "backend/compute_type.h"
#include "backend/cpu/column_sums.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/rows.h"

namespace copus {
namespace {

// A library wants a leading dimension of at least the width, also of a single row.
std::int64_t leading(const TensorView& x) {
  return std::max({x.stride[0], x.size[1], std::int64_t{1}});
}

// A product over nothing is zero; libraries differ there.
template <class T>
void fill_with_bias(const TensorView& out, const TensorView& bias, bool accumulate) {
  RowsOf<T> const to = rows_of<T>(out);
  const auto value = [&](std::int64_t c) {
    if (!bias) return 0.0f;
    return bias.dtype == DType::bf16 ? get(bias.ptr<Bf16>()[c]) : bias.ptr<float>()[c];
  };
  for (std::int64_t r = 0; r < to.rows; ++r) {
    for (std::int64_t c = 0; c < to.width; ++c) {
      put(to.row(r)[c], (accumulate ? get(to.row(r)[c]) : 0.0f) + value(c));
    }
  }
}

void widen(int threads, float* out, const RowsOf<Bf16>& x) {
  Rows const to{out, x.rows, x.width, x.width};
  for_elements(threads, x, [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
    float* const wide = to.row(row);
    const Bf16* const from = x.row(row);
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) wide[i] = get(from[i]);
  });
}

}  // namespace

// Where the processor has no bf16 products, or slow ones: each operand as fp32, which is exact, and
// fp32 sums as it has them. oneDNN's own way there takes four to five times as long (measured,
// avx512_core).
void CpuBackend::widened_matmul(const TensorView& out, const TensorView& a, const TensorView& b,
                                const GemmShape& shape, bool accumulate, const TensorView& bias) {
  bool const round = out.dtype == DType::bf16;
  std::int64_t const n_out = round ? out.numel() : 0, n_bias = bias ? bias.numel() : 0;
  float* const wide_a = scratch(a.numel() + b.numel() + n_bias + n_out);
  float* const wide_b = wide_a + a.numel();
  float* const wide_bias = wide_b + b.numel();
  float* const wide_out = round ? wide_bias + n_bias : out.ptr<float>();
  widen(threads_, wide_a, rows_of<Bf16>(a));
  widen(threads_, wide_b, rows_of<Bf16>(b));
  if (bias) widen(threads_, wide_bias, rows_of<Bf16>(bias));
  GemmShape wide = shape;
  wide.lda = a.size[1];
  wide.ldb = b.size[1];
  if (round) wide.ldc = out.size[1];
  gemm_.run(wide, wide_out, wide_a, wide_b, bias ? wide_bias : nullptr, accumulate);
  if (round) copy(out, TensorView(wide_out, DType::f32, {out.size[0], out.size[1]}));
}

void CpuBackend::matmul(TensorView out, const TensorView& a, const TensorView& b,
                        const MatmulOptions& options, const TensorView& bias) {
  COPUS_CHECK(out.dims == 2 && a.dims == 2 && b.dims == 2, "matrices");
  bool const half = a.dtype == DType::bf16;
  COPUS_CHECK((half || a.dtype == DType::f32) && b.dtype == a.dtype, "both factors f32 or bf16");
  COPUS_CHECK(out.dtype == DType::f32 || (half && out.dtype == DType::bf16 && !options.accumulate),
              "sums over products are f32");
  std::int64_t const m = options.transpose_a ? a.size[1] : a.size[0];
  std::int64_t const k = options.transpose_a ? a.size[0] : a.size[1];
  std::int64_t const n = options.transpose_b ? b.size[0] : b.size[1];
  COPUS_CHECK((options.transpose_b ? b.size[1] : b.size[0]) == k, "inner sizes of a product agree");
  COPUS_CHECK(out.size[0] == m && out.size[1] == n, "the output has the product's sizes");
  COPUS_CHECK(!bias || (bias.dims == 1 && bias.size[0] == n && bias.dtype == a.dtype),
              "one bias a column, of the type of the factors");
  if (m == 0 || n == 0) return;
  GemmShape const shape{options.transpose_a, options.transpose_b, m,           n, k,
                        leading(a),          leading(b),          leading(out)};
  if (k == 0) {
    with_compute_type(out.dtype,
                      [&]<class T>(T) { fill_with_bias<T>(out, bias, options.accumulate); });
  } else if (!half) {
    gemm_.run(shape, out.ptr<float>(), a.ptr<float>(), b.ptr<float>(),
              bias ? bias.ptr<float>() : nullptr, options.accumulate);
  } else if (!widens_bf16_) {
    gemm_.run(shape, out.data, out.dtype, a.ptr<Bf16>(), b.ptr<Bf16>(),
              bias ? bias.ptr<Bf16>() : nullptr, options.accumulate);
  } else {
    widened_matmul(out, a, b, shape, options.accumulate, bias);
  }
}

void CpuBackend::column_sum(TensorView d_bias, const TensorView& d_out) {
  with_compute_type(d_out.dtype, [&]<class T>(T) {
    RowsOf<T> const x = rows_of<T>(d_out);
    COPUS_CHECK(d_bias.dims == 1 && d_bias.size[0] == x.width, "one sum a column");
    ColumnSums sums(x.rows, x.width, 1);
    sums.partials = scratch(sums.floats());
    parallel_for(threads_, sums.blocks, [&](int, std::int64_t block) {
      float* const partial = sums.start(block, 0);
      for (std::int64_t r = sums.first(block); r < sums.last(block); ++r) {
        const T* const from = x.row(r);
#pragma omp simd
        for (std::int64_t c = 0; c < x.width; ++c) partial[c] += get(from[c]);
      }
    });
    sums.add_to(threads_, d_bias.ptr<float>(), 0);
  });
}

}  // namespace copus
