// Matrix products: oneDNN's, or plain blocked loops where it is absent (CMake picks).
#pragma once
#include <cstdint>
#include <memory>

#include "copus/core/dtype.h"

namespace copus {

// out (m, n) = op(a) (m, k) op(b) (k, n); the leading dimensions are those of the stored matrices.
struct GemmShape {
  bool transpose_a = false, transpose_b = false;
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t lda = 0, ldb = 0, ldc = 0;
};

class Gemm {
 public:
  explicit Gemm(int threads);
  ~Gemm();

  // out = op(a) op(b) [+ out] [+ bias (n)], on all threads. bias may be null. Without accumulate,
  // out is only written.
  void run(const GemmShape& shape, float* out, const float* a, const float* b, const float* bias,
           bool accumulate);

  // Whether this processor multiplies bf16 pairs itself and the library makes use of it.
  static bool has_bf16();
  // Whether the library can be asked at all, if only for slow products.
  static bool offers_bf16();
  // The same of bf16, summed in fp32. out is bf16 or, with accumulate only so, f32.
  void run(const GemmShape& shape, void* out, DType out_type, const Bf16* a, const Bf16* b,
           const Bf16* bias, bool accumulate);

  // out = alpha op(a) op(b) + beta out on the calling thread, for use inside a parallel loop.
  static void run_alone(const GemmShape& shape, float alpha, const float* a, const float* b,
                        float beta, float* out);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace copus
