#include "backend/compute_type.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/rows.h"

namespace copus {

void CpuBackend::rope(TensorView x, const TensorView& table, std::int64_t first_position,
                      bool inverse) {
  COPUS_CHECK(x.dims == 4 && x.stride[3] == 1, "x (B, T, heads, D)");
  std::int64_t const T = x.size[1], heads = x.size[2], half = x.size[3] / 2;
  COPUS_CHECK(x.size[3] % 2 == 0 && table.dims == 3 && table.size[1] == half &&
                  table.size[2] == 2 && table.contiguous() && table.dtype == DType::f32,
              "an angle for each pair of a head");
  COPUS_CHECK(first_position >= 0 && first_position + T <= table.size[0],
              "the table holds every position");
  float const sign = inverse ? -1.0f : 1.0f;
  with_compute_type(x.dtype, [&]<class E>(E) {
    for_row_blocks(threads_, x.size[0] * T, 4, [&](int, std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        const float* const angle = table.ptr<float>() + (first_position + r % T) * half * 2;
        for (std::int64_t h = 0; h < heads; ++h) {
          E* const low = x.ptr<E>() + r / T * x.stride[0] + r % T * x.stride[1] + h * x.stride[2];
          E* const high = low + half;
#pragma omp simd
          for (std::int64_t i = 0; i < half; ++i) {
            float a = get(low[i]), b = get(high[i]);
            math::rotate(a, b, angle[2 * i], sign * angle[2 * i + 1]);
            put(low[i], a);
            put(high[i], b);
          }
        }
      }
    });
  });
}

}  // namespace copus
