#include <cstring>

#include "backend/compute_type.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/rows.h"

namespace copus {
namespace {

const std::int32_t* ids_of(const TensorView& ids, std::int64_t rows) {
  COPUS_CHECK(ids.dtype == DType::i32 && ids.contiguous() && ids.numel() == rows, "one id a row");
  return ids.ptr<std::int32_t>();
}

}  // namespace

void CpuBackend::embedding(TensorView out, const TensorView& ids, const TensorView& table,
                           std::int64_t first_row) {
  with_compute_type(out.dtype, [&]<class T>(T) {
    RowsOf<T> const to = rows_of<T>(out), from = rows_of<T>(table);
    COPUS_CHECK(to.width == from.width, "a row of the table fills a row of the output");
    const std::int32_t* const id = ids_of(ids, to.rows);
    auto const bytes = static_cast<std::size_t>(to.width) * sizeof(T);
    parallel_for(threads_, to.rows, [&](int, std::int64_t r) {
      std::int64_t const row = id[r] - first_row;
      if (row >= 0 && row < from.rows) {
        std::memcpy(to.row(r), from.row(row), bytes);
      } else {
        std::memset(to.row(r), 0, bytes);
      }
    });
  });
}

void CpuBackend::embedding_backward(TensorView d_table, const TensorView& ids,
                                    const TensorView& d_out, std::int64_t first_row) {
  with_compute_type(d_out.dtype, [&]<class T>(T) {
    Rows const to = rows_of(d_table);
    RowsOf<T> const from = rows_of<T>(d_out);
    COPUS_CHECK(to.width == from.width, "a row of the gradient fits a row of the table");
    const std::int32_t* const id = ids_of(ids, from.rows);
    // Each worker owns columns and takes all rows in order, so two equal ids add in order.
    constexpr std::int64_t kColumns = 64;
    parallel_for(threads_, (to.width + kColumns - 1) / kColumns, [&](int, std::int64_t piece) {
      std::int64_t const begin = piece * kColumns, end = std::min(begin + kColumns, to.width);
      for (std::int64_t r = 0; r < from.rows; ++r) {
        std::int64_t const row = id[r] - first_row;
        if (row < 0 || row >= to.rows) continue;
        float* const sum = to.row(row);
        const T* const x = from.row(r);
#pragma omp simd
        for (std::int64_t c = begin; c < end; ++c) sum[c] += get(x[c]);
      }
    });
  });
}

void CpuBackend::add_positions(TensorView x, const TensorView& table, std::int64_t first_position) {
  COPUS_CHECK(x.dims == 3, "x (B, T, C)");
  std::int64_t const T = x.size[1];
  with_compute_type(x.dtype, [&]<class E>(E) {
    RowsOf<E> const to = rows_of<E>(x), from = rows_of<E>(table);
    COPUS_CHECK(to.width == from.width && first_position >= 0 && first_position + T <= from.rows,
                "the table holds every position");
    parallel_for(threads_, to.rows, [&](int, std::int64_t r) {
      E* const sum = to.row(r);
      const E* const position = from.row(first_position + r % T);
#pragma omp simd
      for (std::int64_t c = 0; c < to.width; ++c) put(sum[c], get(sum[c]) + get(position[c]));
    });
  });
}

void CpuBackend::positions_backward(TensorView d_table, const TensorView& d_x,
                                    std::int64_t first_position) {
  COPUS_CHECK(d_x.dims == 3, "d_x (B, T, C)");
  with_compute_type(d_x.dtype, [&]<class E>(E) {
    Rows const to = rows_of(d_table);
    RowsOf<E> const from = rows_of<E>(d_x);
    std::int64_t const B = d_x.size[0], T = d_x.size[1];
    COPUS_CHECK(to.width == from.width && first_position >= 0 && first_position + T <= to.rows,
                "the table holds every position");
    parallel_for(threads_, T, [&](int, std::int64_t t) {
      float* const sum = to.row(first_position + t);
      for (std::int64_t b = 0; b < B; ++b) {
        const E* const x = from.row(b * T + t);
#pragma omp simd
        for (std::int64_t c = 0; c < to.width; ++c) sum[c] += get(x[c]);
      }
    });
  });
}

}  // namespace copus
