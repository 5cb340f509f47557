#include <algorithm>
#include <bit>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/rows.h"

namespace copus {
namespace {

std::uint64_t hash_of(const float* x, std::int64_t count, std::uint64_t first, std::uint64_t salt) {
  std::uint64_t sum = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    sum += math::element_hash(std::bit_cast<std::uint32_t>(x[i]),
                              first + static_cast<std::uint64_t>(i), salt);
  }
  return sum;
}

}  // namespace

// Sums modulo 2^64 come out the same in any order: pieces are given to threads as they lie.
std::uint64_t CpuBackend::hash(const TensorView& x, const HashPlace& place) {
  Rows const rows = rows_of(x);
  constexpr std::int64_t kPiece = 1 << 15;
  constexpr std::size_t kStride = 8;  // each thread's sum on a cache line of its own
  std::int64_t const across = (rows.width + kPiece - 1) / kPiece;
  std::vector<std::uint64_t> sums(static_cast<std::size_t>(threads_) * kStride);
  parallel_for(threads_, rows.rows * across, [&](int worker, std::int64_t i) {
    std::int64_t const row = i / across, begin = i % across * kPiece;
    sums[static_cast<std::size_t>(worker) * kStride] +=
        hash_of(rows.row(row) + begin, std::min(kPiece, rows.width - begin),
                place.first + static_cast<std::uint64_t>(row) * place.pitch +
                    static_cast<std::uint64_t>(begin),
                place.salt);
  });
  std::uint64_t sum = 0;
  for (std::uint64_t part : sums) sum += part;
  return sum;
}

}  // namespace copus
