#include <cmath>

#include "backend/compute_type.h"
#include "backend/cpu/column_sums.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/rows.h"

namespace copus {
namespace {

float* statistics_of(const TensorView& x, std::int64_t rows) {
  COPUS_CHECK(x.dtype == DType::f32 && x.contiguous() && x.numel() == rows, "one value a row");
  return x.ptr<float>();
}

template <class T>
T* columns_of(const TensorView& x, std::int64_t width) {
  COPUS_CHECK(x.dtype == kDTypeOf<T> && x.contiguous() && x.numel() == width, "one value a column");
  return x.ptr<T>();
}

constexpr std::int64_t kRows = ColumnSums::kRowsPerBlock;

// The rows of x, written as a + b one by one where that is asked for: the norm then finds each in
// the nearest cache.
template <class T>
class SummedRows {
 public:
  SummedRows(const TensorView& x, const Addends& sum) : x_(rows_of<T>(x)), adds_(sum.a) {
    if (!adds_) return;
    a_ = rows_of<T>(sum.a), b_ = rows_of<T>(sum.b);
    COPUS_CHECK(
        a_.rows == x_.rows && b_.rows == x_.rows && a_.width == x_.width && b_.width == x_.width,
        "a sum has the sizes of its parts");
  }
  const T* row(std::int64_t r) const {
    T* const x = x_.row(r);
    if (adds_) {
      const T* const a = a_.row(r);
      const T* const b = b_.row(r);
#pragma omp simd
      for (std::int64_t c = 0; c < x_.width; ++c) put(x[c], get(a[c]) + get(b[c]));
    }
    return x;
  }

 private:
  RowsOf<T> x_, a_{}, b_{};
  bool adds_;
};

}  // namespace

void CpuBackend::rms_norm(TensorView out, TensorView rstd, const TensorView& x,
                          const TensorView& gain, float eps, const Addends& sum) {
  with_compute_type(out.dtype, [&]<class T>(T) {
    RowsOf<T> const to = rows_of<T>(out), from = rows_of<T>(x);
    SummedRows<T> const summed(x, sum);
    COPUS_CHECK(to.rows == from.rows && to.width == from.width, "out has the sizes of x");
    float* const scale = statistics_of(rstd, from.rows);
    const T* const g = columns_of<T>(gain, from.width);
    std::int64_t const C = from.width;
    auto const width = static_cast<float>(C);
    for_row_blocks(threads_, from.rows, 8, [&](int, std::int64_t first, std::int64_t last) {
      for (std::int64_t r = first; r < last; ++r) {
        const T* const a = summed.row(r);
        T* const y = to.row(r);
        float squares = 0.0f;
#pragma omp simd reduction(+ : squares)
        for (std::int64_t c = 0; c < C; ++c) squares = std::fma(get(a[c]), get(a[c]), squares);
        float const s = 1.0f / std::sqrt(squares / width + eps);
        scale[r] = s;
#pragma omp simd
        for (std::int64_t c = 0; c < C; ++c) put(y[c], get(a[c]) * s * get(g[c]));
      }
    });
  });
}

// With n = x rstd: d_x = rstd (gain d_out - n mean(gain d_out n)), d_gain = sum over rows d_out n.
void CpuBackend::rms_norm_backward(TensorView d_x, TensorView d_gain, const TensorView& d_out,
                                   const TensorView& x, const TensorView& gain,
                                   const TensorView& rstd) {
  with_compute_type(d_x.dtype, [&]<class T>(T) {
    RowsOf<T> const to = rows_of<T>(d_x), d = rows_of<T>(d_out), from = rows_of<T>(x);
    COPUS_CHECK(to.rows == from.rows && to.width == from.width && d.rows == from.rows &&
                    d.width == from.width,
                "gradients have the sizes of x");
    const float* const scale = statistics_of(rstd, from.rows);
    const T* const g = columns_of<T>(gain, from.width);
    std::int64_t const C = from.width;
    auto const width = static_cast<float>(C);
    ColumnSums sums(from.rows, C, 1);
    sums.partials = scratch(sums.floats());
    for_row_blocks(threads_, from.rows, kRows, [&](int, std::int64_t first, std::int64_t last) {
      float* const d_g = sums.start(first / kRows, 0);
      for (std::int64_t r = first; r < last; ++r) {
        const T* const a = from.row(r);
        const T* const dy = d.row(r);
        T* const dx = to.row(r);
        float const s = scale[r];
        float dot = 0.0f;
#pragma omp simd reduction(+ : dot)
        for (std::int64_t c = 0; c < C; ++c) {
          float const along = get(dy[c]) * (get(a[c]) * s);
          d_g[c] += along;
          dot = std::fma(along, get(g[c]), dot);
        }
        float const mean = dot / width;
#pragma omp simd
        for (std::int64_t c = 0; c < C; ++c) {
          put(dx[c],
              std::fma(s, std::fma(-(get(a[c]) * s), mean, get(dy[c]) * get(g[c])), get(dx[c])));
        }
      }
    });
    sums.add_to(threads_, columns_of<float>(d_gain, C), 0);
  });
}

void CpuBackend::layer_norm(TensorView out, TensorView mean, TensorView rstd, const TensorView& x,
                            const TensorView& gain, const TensorView& bias, float eps,
                            const Addends& sum) {
  with_compute_type(out.dtype, [&]<class T>(T) {
    RowsOf<T> const to = rows_of<T>(out), from = rows_of<T>(x);
    SummedRows<T> const summed(x, sum);
    COPUS_CHECK(to.rows == from.rows && to.width == from.width, "out has the sizes of x");
    float* const means = statistics_of(mean, from.rows);
    float* const scale = statistics_of(rstd, from.rows);
    const T* const g = columns_of<T>(gain, from.width);
    const T* const shift = columns_of<T>(bias, from.width);
    std::int64_t const C = from.width;
    auto const width = static_cast<float>(C);
    for_row_blocks(threads_, from.rows, 8, [&](int, std::int64_t first, std::int64_t last) {
      for (std::int64_t r = first; r < last; ++r) {
        const T* const a = summed.row(r);
        T* const y = to.row(r);
        float total = 0.0f;
#pragma omp simd reduction(+ : total)
        for (std::int64_t c = 0; c < C; ++c) total += get(a[c]);
        float const m = total / width;
        // The second pass is over a row in the nearest cache, and exact where mean^2 >> variance.
        float squares = 0.0f;
#pragma omp simd reduction(+ : squares)
        for (std::int64_t c = 0; c < C; ++c)
          squares = std::fma(get(a[c]) - m, get(a[c]) - m, squares);
        float const s = 1.0f / std::sqrt(squares / width + eps);
        means[r] = m;
        scale[r] = s;
#pragma omp simd
        for (std::int64_t c = 0; c < C; ++c)
          put(y[c], std::fma((get(a[c]) - m) * s, get(g[c]), get(shift[c])));
      }
    });
  });
}

// With n = (x - mean) rstd and e = gain d_out: d_x = rstd (e - mean(e) - n mean(e n)),
// d_gain = sum over rows d_out n, d_bias = sum over rows d_out.
void CpuBackend::layer_norm_backward(TensorView d_x, TensorView d_gain, TensorView d_bias,
                                     const TensorView& d_out, const TensorView& x,
                                     const TensorView& gain, const TensorView& mean,
                                     const TensorView& rstd) {
  with_compute_type(d_x.dtype, [&]<class T>(T) {
    RowsOf<T> const to = rows_of<T>(d_x), d = rows_of<T>(d_out), from = rows_of<T>(x);
    COPUS_CHECK(to.rows == from.rows && to.width == from.width && d.rows == from.rows &&
                    d.width == from.width,
                "gradients have the sizes of x");
    const float* const means = statistics_of(mean, from.rows);
    const float* const scale = statistics_of(rstd, from.rows);
    const T* const g = columns_of<T>(gain, from.width);
    std::int64_t const C = from.width;
    auto const width = static_cast<float>(C);
    ColumnSums sums(from.rows, C, 2);
    sums.partials = scratch(sums.floats());
    for_row_blocks(threads_, from.rows, kRows, [&](int, std::int64_t first, std::int64_t last) {
      float* const d_g = sums.start(first / kRows, 0);
      float* const d_b = sums.start(first / kRows, 1);
      for (std::int64_t r = first; r < last; ++r) {
        const T* const a = from.row(r);
        const T* const dy = d.row(r);
        T* const dx = to.row(r);
        float const m = means[r], s = scale[r];
        float total = 0.0f, dot = 0.0f;
#pragma omp simd reduction(+ : total, dot)
        for (std::int64_t c = 0; c < C; ++c) {
          float const along = get(dy[c]) * ((get(a[c]) - m) * s);
          d_b[c] += get(dy[c]);
          d_g[c] += along;
          total = std::fma(get(dy[c]), get(g[c]), total);
          dot = std::fma(along, get(g[c]), dot);
        }
        float const mean_e = total / width, mean_en = dot / width;
#pragma omp simd
        for (std::int64_t c = 0; c < C; ++c) {
          float const n = (get(a[c]) - m) * s;
          put(dx[c], std::fma(s, std::fma(-n, mean_en, std::fma(get(dy[c]), get(g[c]), -mean_e)),
                              get(dx[c])));
        }
      }
    });
    sums.add_to(threads_, columns_of<float>(d_gain, C), 0);
    sums.add_to(threads_, columns_of<float>(d_bias, C), 1);
  });
}

}  // namespace copus
