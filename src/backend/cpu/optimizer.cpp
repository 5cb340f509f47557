#include "backend/compute_type.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/rows.h"

namespace copus {

void CpuBackend::adamw(TensorView weight, TensorView m, TensorView v, const TensorView& grad,
                       float grad_scale, const math::AdamScalars& scalars, const TensorView& copy) {
  auto const rows = same_rows<4>({weight, m, v, grad});
  math::AdamScalars const s = scalars;  // a copy that no store below can change
  // after(row, i, new weight), for every element
  auto const update = [&](const auto& after) {
    for_elements(threads_, rows[0], [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
      float* const w = rows[0].row(row);
      float* const first = rows[1].row(row);
      float* const second = rows[2].row(row);
      const float* const g = rows[3].row(row);
      math::AdamScalars const local = s;
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) {
        math::adamw(w[i], first[i], second[i], g[i] * grad_scale, local);
        after(row, i, w[i]);
      }
    });
  };
  if (!copy) return update([](std::int64_t, std::int64_t, float) {});
  with_compute_type(copy.dtype, [&]<class T>(T) {
    RowsOf<T> const to = rows_of<T>(copy);
    COPUS_CHECK(to.rows == rows[0].rows && to.width == rows[0].width,
                "a copy as long as the weights");
    update([&](std::int64_t row, std::int64_t i, float w) { put(to.row(row)[i], w); });
  });
}

}  // namespace copus
