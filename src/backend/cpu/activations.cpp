#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/rows.h"

namespace copus {

void CpuBackend::add(TensorView out, const TensorView& a, const TensorView& b) {
  auto const rows = same_rows<3>({out, a, b});
  for_elements(threads_, rows[0], [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
    float* const to = rows[0].row(row);
    const float* const x = rows[1].row(row);
    const float* const y = rows[2].row(row);
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) to[i] = x[i] + y[i];
  });
}

void CpuBackend::gelu(TensorView out, const TensorView& x) {
  auto const rows = same_rows<2>({out, x});
  for_elements(threads_, rows[0], [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
    float* const to = rows[0].row(row);
    const float* const from = rows[1].row(row);
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) to[i] = math::gelu(from[i]);
  });
}

void CpuBackend::gelu_backward(TensorView d_x, const TensorView& d_out, const TensorView& x) {
  auto const rows = same_rows<3>({d_x, d_out, x});
  for_elements(threads_, rows[0], [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
    float* const to = rows[0].row(row);
    const float* const d = rows[1].row(row);
    const float* const from = rows[2].row(row);
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) to[i] = d[i] * math::gelu_grad(from[i]);
  });
}

void CpuBackend::swiglu(TensorView out, const TensorView& gate, const TensorView& up) {
  auto const rows = same_rows<3>({out, gate, up});
  for_elements(threads_, rows[0], [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
    float* const to = rows[0].row(row);
    const float* const g = rows[1].row(row);
    const float* const u = rows[2].row(row);
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) to[i] = math::silu(g[i]) * u[i];
  });
}

void CpuBackend::swiglu_backward(TensorView d_gate, TensorView d_up, const TensorView& d_out,
                                 const TensorView& gate, const TensorView& up) {
  auto const rows = same_rows<5>({d_gate, d_up, d_out, gate, up});
  for_elements(threads_, rows[0], [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
    float* const d_g = rows[0].row(row);
    float* const d_u = rows[1].row(row);
    const float* const d = rows[2].row(row);
    const float* const g = rows[3].row(row);
    const float* const u = rows[4].row(row);
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) {
      float const gradient = d[i], x = g[i], y = u[i];
      d_g[i] = gradient * y * math::silu_grad(x);
      d_u[i] = gradient * math::silu(x);
    }
  });
}

}  // namespace copus
