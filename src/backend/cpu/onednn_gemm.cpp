#include <fmt/core.h>
#include <oneapi/dnnl/dnnl.h>

#include "backend/cpu/gemm.h"
#include "backend/cpu/parallel_for.h"
#include "backend/cpu/rows.h"
#include "copus/core/error.h"

namespace copus {
namespace {

void sgemm(const GemmShape& s, float alpha, const float* a, const float* b, float beta,
           float* out) {
  dnnl_status_t const status = dnnl_sgemm(s.transpose_a ? 'T' : 'N', s.transpose_b ? 'T' : 'N', s.m,
                                          s.n, s.k, alpha, a, s.lda, b, s.ldb, beta, out, s.ldc);
  COPUS_CHECK(status == dnnl_success, fmt::format("dnnl_sgemm of ({}, {}, {}) returned {}", s.m,
                                                  s.n, s.k, static_cast<int>(status)));
}

}  // namespace

struct Gemm::State {
  int threads;
};

Gemm::Gemm(int threads) : state_(new State{threads}) {}
Gemm::~Gemm() = default;

void Gemm::run(const GemmShape& s, float* out, const float* a, const float* b, const float* bias,
               bool accumulate) {
  use_threads(state_->threads);
  if (bias != nullptr) {
    // The bias first, then the product on top of it.
    Rows const shape{out, s.m, s.n, s.ldc};
    for_elements(state_->threads, shape,
                 [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
                   float* const to = shape.row(row);
                   if (accumulate) {
                     for (std::int64_t i = begin; i < end; ++i) to[i] += bias[i];
                   } else {
                     std::copy(bias + begin, bias + end, to + begin);
                   }
                 });
  }
  sgemm(s, 1.0f, a, b, accumulate || bias != nullptr ? 1.0f : 0.0f, out);
}

void Gemm::run_alone(const GemmShape& s, float alpha, const float* a, const float* b, float beta,
                     float* out) {
  sgemm(s, alpha, a, b, beta, out);
}

}  // namespace copus
