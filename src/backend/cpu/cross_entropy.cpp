#include <cmath>
#include <limits>

#include "backend/compute_type.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/rows.h"

namespace copus {
namespace {

template <class T>
T* one_a_row(const TensorView& x, DType dtype, std::int64_t rows) {
  COPUS_CHECK(x.dtype == dtype && x.contiguous() && x.numel() == rows, "one value a row");
  return x.ptr<T>();
}

// Floats over a stretch of columns, doubles over the stretches: a row of 150,000 logits loses
// nothing.
constexpr std::int64_t kStretch = 2048;

float largest(const float* x, std::int64_t n) {
  float most = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : most)
  for (std::int64_t i = 0; i < n; ++i) most = x[i] > most ? x[i] : most;
  return most;
}

double sum_of_exp(const float* x, std::int64_t n, float shift) {
  double total = 0.0;
  for (std::int64_t begin = 0; begin < n; begin += kStretch) {
    std::int64_t const end = std::min(begin + kStretch, n);
    float part = 0.0f;
#pragma omp simd reduction(+ : part)
    for (std::int64_t i = begin; i < end; ++i) part += math::exp(x[i] - shift);
    total += static_cast<double>(part);
  }
  return total;
}

// out = exp(x - shift) scale, less 1 at `target` (none: negative). A bf16 row may begin where x
// begins: a stretch of x is read before as many elements, half as long, are written.
template <class T>
void softmax_gradient(T* out, const float* x, std::int64_t target, std::int64_t n, float shift,
                      float scale) {
  for (std::int64_t begin = 0; begin < n; begin += kStretch) {
    std::int64_t const count = std::min(kStretch, n - begin);
    float stretch[kStretch];
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) stretch[i] = math::exp(x[begin + i] - shift) * scale;
    if (target >= begin && target < begin + count) stretch[target - begin] -= 1.0f;
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) put(out[begin + i], stretch[i]);
  }
}

}  // namespace

void CpuBackend::cross_entropy_stats(TensorView row_max, TensorView row_sum,
                                     TensorView target_logit, const TensorView& logits,
                                     const TensorView& targets, std::int64_t first_column,
                                     std::int64_t valid_columns) {
  Rows const x = rows_of(logits);
  COPUS_CHECK(valid_columns >= 0 && valid_columns <= x.width, "padding is at the end of a row");
  auto* const most = one_a_row<float>(row_max, DType::f32, x.rows);
  auto* const sums = one_a_row<float>(row_sum, DType::f32, x.rows);
  auto* const at_target = one_a_row<float>(target_logit, DType::f32, x.rows);
  const auto* const target = one_a_row<std::int32_t>(targets, DType::i32, x.rows);
  parallel_for(threads_, x.rows, [&](int, std::int64_t r) {
    const float* const row = x.row(r);
    // The row stays in the second-level cache between the two passes.
    float const m = largest(row, valid_columns);
    most[r] = m;
    sums[r] = static_cast<float>(sum_of_exp(row, valid_columns, m));
    std::int64_t const column = target[r] - first_column;
    at_target[r] = column >= 0 && column < valid_columns ? row[column] : 0.0f;
  });
}

void CpuBackend::cross_entropy_rescale(TensorView row_sum, TensorView row_max,
                                       const TensorView& global_max) {
  std::int64_t const rows = row_sum.numel();
  auto* const sums = one_a_row<float>(row_sum, DType::f32, rows);
  auto* const most = one_a_row<float>(row_max, DType::f32, rows);
  const auto* const global = one_a_row<float>(global_max, DType::f32, rows);
  for (std::int64_t r = 0; r < rows; ++r) {
    sums[r] = math::rescaled_sum(sums[r], most[r], global[r]);
    most[r] = global[r];
  }
}

void CpuBackend::cross_entropy_loss(TensorView losses, const TensorView& row_max,
                                    const TensorView& row_sum, const TensorView& target_logit,
                                    const TensorView& targets) {
  std::int64_t const rows = losses.numel();
  auto* const loss = one_a_row<float>(losses, DType::f32, rows);
  const auto* const most = one_a_row<float>(row_max, DType::f32, rows);
  const auto* const sums = one_a_row<float>(row_sum, DType::f32, rows);
  const auto* const at_target = one_a_row<float>(target_logit, DType::f32, rows);
  const auto* const target = one_a_row<std::int32_t>(targets, DType::i32, rows);
  for (std::int64_t r = 0; r < rows; ++r) {
    loss[r] = target[r] < 0 ? 0.0f : math::cross_entropy(most[r], sums[r], at_target[r]);
  }
}

void CpuBackend::cross_entropy_backward(TensorView d_logits, const TensorView& logits,
                                        const TensorView& row_max, const TensorView& row_sum,
                                        const TensorView& targets, std::int64_t first_column,
                                        std::int64_t valid_columns) {
  Rows const x = rows_of(logits);
  COPUS_CHECK(valid_columns >= 0 && valid_columns <= x.width, "padding is at the end of a row");
  const auto* const most = one_a_row<float>(row_max, DType::f32, x.rows);
  const auto* const sums = one_a_row<float>(row_sum, DType::f32, x.rows);
  const auto* const target = one_a_row<std::int32_t>(targets, DType::i32, x.rows);
  with_compute_type(d_logits.dtype, [&]<class T>(T) {
    RowsOf<T> const to = rows_of<T>(d_logits);
    COPUS_CHECK(to.rows == x.rows && to.width == x.width, "d_logits has the sizes of logits");
    parallel_for(threads_, x.rows, [&](int, std::int64_t r) {
      T* const out = to.row(r);
      if (target[r] < 0) {
        std::fill(out, out + x.width, T{});
        return;
      }
      std::int64_t const column = target[r] - first_column;
      softmax_gradient(out, x.row(r), column < valid_columns ? column : -1, valid_columns, most[r],
                       1.0f / sums[r]);
      std::fill(out + valid_columns, out + x.width, T{});
    });
  });
}

}  // namespace copus
