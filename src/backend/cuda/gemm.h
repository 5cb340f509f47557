// Matrix products of row-major matrices by cuBLASLt: f32 in true fp32 (no TF32), bf16 with sums in
// f32. The algorithm for each shape is asked for once and kept.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "copus/core/dtype.h"

namespace copus::cuda {

// out (m, n) = op(a) (m, k) op(b) (k, n) [+ out] [+ bias (n)]; leading dimensions are those of the
// stored matrices.
struct Product {
  bool transpose_a = false, transpose_b = false, accumulate = false;
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t lda = 0, ldb = 0, ldc = 0;
  DType type = DType::f32, out_type = DType::f32;  // of a, b and bias; bf16 may give f32
  void* out = nullptr;
  const void* a = nullptr;
  const void* b = nullptr;
  const void* bias = nullptr;  // or null
};

class Gemm {
 public:
  Gemm();  // on the current device
  ~Gemm();

  void run(cudaStream_t stream, const Product& product);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace copus::cuda
