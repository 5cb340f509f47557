#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/rows.h"

namespace copus {
namespace {

double sum_of(const float* x, std::int64_t n) {
  double total = 0.0;
#pragma omp simd reduction(+ : total)
  for (std::int64_t i = 0; i < n; ++i) total += static_cast<double>(x[i]);
  return total;
}

double squares_of(const float* x, std::int64_t n) {
  double total = 0.0;
#pragma omp simd reduction(+ : total)
  for (std::int64_t i = 0; i < n; ++i) {
    auto const value = static_cast<double>(x[i]);
    total = std::fma(value, value, total);
  }
  return total;
}

// One double a block of fixed size, the blocks added in their order.
template <class BlockSum>
double in_blocks(int threads, const Rows& x, double* partials, std::int64_t block,
                 const BlockSum& block_sum) {
  std::int64_t const across = (x.width + block - 1) / block;
  parallel_for(threads, x.rows * across, [&](int, std::int64_t i) {
    std::int64_t const begin = i % across * block;
    partials[i] = block_sum(x.row(i / across) + begin, std::min(block, x.width - begin));
  });
  double total = 0.0;
  for (std::int64_t i = 0; i < x.rows * across; ++i) total += partials[i];
  return total;
}

constexpr std::int64_t kBlock = 1 << 15;

std::int64_t floats_for_partials(const Rows& x) {
  return 2 * x.rows * ((x.width + kBlock - 1) / kBlock);
}

}  // namespace

double CpuBackend::sum(const TensorView& x) {
  Rows const rows = flat_rows_of(x);
  auto* const partials = reinterpret_cast<double*>(scratch(floats_for_partials(rows)));
  return in_blocks(threads_, rows, partials, kBlock, sum_of);
}

double CpuBackend::square_sum(const TensorView& x) {
  Rows const rows = flat_rows_of(x);
  auto* const partials = reinterpret_cast<double*>(scratch(floats_for_partials(rows)));
  return in_blocks(threads_, rows, partials, kBlock, squares_of);
}

}  // namespace copus
