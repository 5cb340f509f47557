#include "backend/compute_type.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/keep_mask.h"
#include "backend/cpu/rows.h"

namespace copus {

void CpuBackend::dropout(TensorView x, const Dropout& options) {
  COPUS_CHECK(options.p >= 0.0f && options.p < 1.0f, "a dropout probability below 1");
  if (options.p == 0.0f) return;
  KeepMask const mask(options);
  with_compute_type(x.dtype, [&]<class T>(T) {
    RowsOf<T> const rows = flat_rows_of<T>(x);
    for_elements(threads_, rows, [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
      T* const data = rows.row(row);
      float factor[KeepMask::kRun];
      for (std::int64_t i = begin; i < end; i += KeepMask::kRun) {
        std::int64_t const n = std::min(KeepMask::kRun, end - i);
        mask.factors(factor, options.first + static_cast<std::uint64_t>(row * rows.width + i), n);
        // A product, not a select: what is dropped out of a NaN stays a NaN.
#pragma omp simd
        for (std::int64_t j = 0; j < n; ++j) put(data[i + j], get(data[i + j]) * factor[j]);
      }
    });
  });
}

}  // namespace copus
