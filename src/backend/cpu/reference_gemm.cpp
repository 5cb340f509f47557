// Plain loops, blocked for the caches: slower than a library, the same results within rounding.
#include <algorithm>
#include <vector>

#include "backend/cpu/gemm.h"
#include "backend/cpu/parallel_for.h"
#include "copus/core/error.h"

namespace copus {
namespace {

constexpr std::int64_t kRowBlock = 64, kDepth = 256, kColumns = 256;
constexpr std::int64_t kTileRows = 4, kTileColumns = 64;

// op(x)[first_row.., first_column..] as a contiguous (rows, stride) block.
void pack(float* to, std::int64_t stride, const float* x, std::int64_t ld, bool transpose,
          std::int64_t first_row, std::int64_t rows, std::int64_t first_column,
          std::int64_t columns) {
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) {
      to[r * stride + c] = transpose ? x[(first_column + c) * ld + first_row + r]
                                     : x[(first_row + r) * ld + first_column + c];
    }
  }
}

// out (rows <= kTileRows, columns <= kTileColumns) += alpha a b over `depth`; a has kDepth, b
// kColumns between its rows. b is packed with zeros up to the tile's width.
void tile(float* out, std::int64_t ldc, std::int64_t rows, std::int64_t columns, const float* a,
          const float* b, std::int64_t depth, float alpha) {
  float sum[kTileRows][kTileColumns] = {};
  for (std::int64_t k = 0; k < depth; ++k) {
    for (std::int64_t r = 0; r < kTileRows; ++r) {
      float const factor = a[r * kDepth + k];
#pragma omp simd
      for (std::int64_t c = 0; c < kTileColumns; ++c) sum[r][c] += factor * b[k * kColumns + c];
    }
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) out[r * ldc + c] += alpha * sum[r][c];
  }
}

struct Panels {
  std::vector<float> a = std::vector<float>(kRowBlock * kDepth);
  std::vector<float> b = std::vector<float>(kDepth * kColumns);
};

// Rows [first, last) of the product, added to out.
void add_rows(const GemmShape& s, float alpha, const float* a, const float* b, float* out,
              std::int64_t first, std::int64_t last, Panels& panels) {
  for (std::int64_t k = 0; k < s.k; k += kDepth) {
    std::int64_t const depth = std::min(kDepth, s.k - k);
    std::fill(panels.a.begin(), panels.a.end(), 0.0f);
    pack(panels.a.data(), kDepth, a, s.lda, s.transpose_a, first, last - first, k, depth);
    for (std::int64_t n = 0; n < s.n; n += kColumns) {
      std::int64_t const columns = std::min(kColumns, s.n - n);
      std::fill(panels.b.begin(), panels.b.end(), 0.0f);
      pack(panels.b.data(), kColumns, b, s.ldb, s.transpose_b, k, depth, n, columns);
      for (std::int64_t r = 0; r < last - first; r += kTileRows) {
        for (std::int64_t c = 0; c < columns; c += kTileColumns) {
          tile(out + (first + r) * s.ldc + n + c, s.ldc, std::min(kTileRows, last - first - r),
               std::min(kTileColumns, columns - c), panels.a.data() + r * kDepth,
               panels.b.data() + c, depth, alpha);
        }
      }
    }
  }
}

}  // namespace

struct Gemm::State {
  int threads;
};

Gemm::Gemm(int threads) : state_(new State{threads}) {}
Gemm::~Gemm() = default;

void Gemm::run(const GemmShape& s, float* out, const float* a, const float* b, const float* bias,
               bool accumulate) {
  std::int64_t const blocks = (s.m + kRowBlock - 1) / kRowBlock;
  parallel_for(state_->threads, blocks, [&](int, std::int64_t block) {
    std::int64_t const first = block * kRowBlock, last = std::min(first + kRowBlock, s.m);
    for (std::int64_t r = first; r < last; ++r) {
      for (std::int64_t c = 0; c < s.n; ++c) {
        float const start = accumulate ? out[r * s.ldc + c] : 0.0f;
        out[r * s.ldc + c] = bias != nullptr ? start + bias[c] : start;
      }
    }
    Panels panels;
    add_rows(s, 1.0f, a, b, out, first, last, panels);
  });
}

bool Gemm::has_bf16() {
  return false;
}

bool Gemm::offers_bf16() {
  return false;
}

void Gemm::run(const GemmShape&, void*, DType, const Bf16*, const Bf16*, const Bf16*, bool) {
  COPUS_CHECK(false, "these loops multiply fp32 alone");
}

void Gemm::run_alone(const GemmShape& s, float alpha, const float* a, const float* b, float beta,
                     float* out) {
  for (std::int64_t r = 0; r < s.m; ++r) {
    for (std::int64_t c = 0; c < s.n; ++c) {
      out[r * s.ldc + c] = beta == 0.0f ? 0.0f : beta * out[r * s.ldc + c];
    }
  }
  Panels panels;
  for (std::int64_t first = 0; first < s.m; first += kRowBlock) {
    add_rows(s, alpha, a, b, out, first, std::min(first + kRowBlock, s.m), panels);
  }
}

}  // namespace copus
