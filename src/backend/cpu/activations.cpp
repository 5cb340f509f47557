#include "backend/compute_type.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/rows.h"

namespace copus {

void CpuBackend::add(TensorView out, const TensorView& a, const TensorView& b) {
  with_compute_type(out.dtype, [&]<class T>(T) {
    auto const rows = same_rows<3, T>({out, a, b});
    for_elements(threads_, rows[0], [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
      T* const to = rows[0].row(row);
      const T* const x = rows[1].row(row);
      const T* const y = rows[2].row(row);
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) put(to[i], get(x[i]) + get(y[i]));
    });
  });
}

void CpuBackend::gelu(TensorView out, const TensorView& x) {
  with_compute_type(out.dtype, [&]<class T>(T) {
    auto const rows = same_rows<2, T>({out, x});
    for_elements(threads_, rows[0], [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
      T* const to = rows[0].row(row);
      const T* const from = rows[1].row(row);
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) put(to[i], math::gelu(get(from[i])));
    });
  });
}

void CpuBackend::gelu_backward(TensorView d_x, const TensorView& d_out, const TensorView& x) {
  with_compute_type(d_x.dtype, [&]<class T>(T) {
    auto const rows = same_rows<3, T>({d_x, d_out, x});
    for_elements(threads_, rows[0], [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
      T* const to = rows[0].row(row);
      const T* const d = rows[1].row(row);
      const T* const from = rows[2].row(row);
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i)
        put(to[i], get(d[i]) * math::gelu_grad(get(from[i])));
    });
  });
}

void CpuBackend::swiglu(TensorView out, const TensorView& gate, const TensorView& up) {
  with_compute_type(out.dtype, [&]<class T>(T) {
    auto const rows = same_rows<3, T>({out, gate, up});
    for_elements(threads_, rows[0], [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
      T* const to = rows[0].row(row);
      const T* const g = rows[1].row(row);
      const T* const u = rows[2].row(row);
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) put(to[i], math::silu(get(g[i])) * get(u[i]));
    });
  });
}

void CpuBackend::swiglu_backward(TensorView d_gate, TensorView d_up, const TensorView& d_out,
                                 const TensorView& gate, const TensorView& up) {
  with_compute_type(d_gate.dtype, [&]<class T>(T) {
    auto const rows = same_rows<5, T>({d_gate, d_up, d_out, gate, up});
    for_elements(threads_, rows[0], [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
      T* const d_g = rows[0].row(row);
      T* const d_u = rows[1].row(row);
      const T* const d = rows[2].row(row);
      const T* const g = rows[3].row(row);
      const T* const u = rows[4].row(row);
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) {
        float const gradient = get(d[i]), x = get(g[i]), y = get(u[i]);
        put(d_g[i], gradient * y * math::silu_grad(x));
        put(d_u[i], gradient * math::silu(x));
      }
    });
  });
}

}  // namespace copus
