// Tiles in shared memory and the products between them, from which the attention kernels are made.
//
// A block of 16 x 16 threads (ty, tx) works on a tile of queries and one of keys. Of a matrix of
// scores (queries, keys) a thread holds the queries ty kM .. ty kM + kM - 1 and the keys tx, tx +
// 16, ...: rows of a tile are kDepth + 4 floats apart, so the 16-byte reads of neighbouring keys
// fall into different banks.
#pragma once
#include "backend/cuda/keep_mask.cuh"

namespace copus::cuda {

inline constexpr int kSide = 16;
inline constexpr int kTileThreads = kSide * kSide;

// One of q, k, v, ... (B, T, heads, D) with strided rows. Tiles are f32 whatever its type.
template <class T>
struct Heads {
  T* data;
  std::int64_t batch_stride, row_stride, head_stride;
  __device__ T* at(std::int64_t b, std::int64_t h) const {
    return data + b * batch_stride + h * head_stride;
  }
};

struct AttentionSizes {
  int T, H, K, D;
  float scale;
  bool fours;  // every row is whole groups of four elements that one access takes
};

struct AttentionDropout {
  KeepMask mask;
  bool on;
  std::uint64_t first;
  std::int64_t first_head, global_heads;
  // The first element of the scores of head h in batch row b.
  __device__ std::uint64_t first_of(std::int64_t b, std::int64_t h, std::int64_t T) const {
    return first + static_cast<std::uint64_t>((b * global_heads + first_head + h) * T * T);
  }
};

template <int kDepth>
inline constexpr int kRow = kDepth + 4;  // floats from one row of a tile to the next

// Rows [first, first + kRows) of a head, zeros from row T and from column D on.
template <int kRows, int kDepth, class T>
__device__ void load_tile(float* tile, const T* rows, std::int64_t stride, int first,
                          const AttentionSizes& s) {
  constexpr int kQuads = kDepth / 4;
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kQuads; i += kTileThreads) {
    int const r = i / kQuads, d = i % kQuads * 4;
    Pack<4> value{};
    if (first + r < s.T && d < s.D) {
      const T* const from = rows + (first + r) * stride + d;
      if (s.fours) {
        value = load<4>(from);
      } else {
#pragma unroll
        for (int w = 0; w < 4; ++w) value.at[w] = d + w < s.D ? get(from[w]) : 0.0f;
      }
    }
    store<4>(tile + r * kRow<kDepth> + d, value);
  }
}

// The thread's part of a matrix of kM x 16 rows, kDepth columns: columns 64 c + 4 tx + w.
template <int kM, int kDepth>
struct RowSums {
  static constexpr int kQuads = kDepth / 64;
  Pack<4> at[kM][kQuads];

  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < kM; ++i) {
#pragma unroll
      for (int c = 0; c < kQuads; ++c) at[i][c] = Pack<4>{};
    }
  }
  __device__ void multiply(int i, float factor) {
#pragma unroll
    for (int c = 0; c < kQuads; ++c) {
#pragma unroll
      for (int w = 0; w < 4; ++w) at[i][c].at[w] *= factor;
    }
  }
  // To rows first + ty kM + i of a head, as far as there are any.
  template <class T>
  __device__ void write(T* rows, std::int64_t stride, int first, const AttentionSizes& s, int ty,
                        int tx) const {
#pragma unroll
    for (int i = 0; i < kM; ++i) {
      int const row = first + ty * kM + i;
      if (row >= s.T) continue;
#pragma unroll
      for (int c = 0; c < kQuads; ++c) {
        int const d = 64 * c + 4 * tx;
        T* const to = rows + row * stride + d;
        if (s.fours) {
          if (d < s.D) store<4>(to, at[i][c]);
        } else {
#pragma unroll
          for (int w = 0; w < 4; ++w) {
            if (d + w < s.D) put(to[w], at[i][c].at[w]);
          }
        }
      }
    }
  }
};

// products[i][j] = row (ty kM + i) of a . row (tx + 16 j) of b.
template <int kM, int kN, int kDepth>
__device__ void row_products(float (&products)[kM][kN], const float* a, const float* b, int ty,
                             int tx) {
#pragma unroll
  for (int i = 0; i < kM; ++i) {
#pragma unroll
    for (int j = 0; j < kN; ++j) products[i][j] = 0.0f;
  }
#pragma unroll 2
  for (int d = 0; d < kDepth; d += 4) {
    Pack<4> x[kM], y[kN];
#pragma unroll
    for (int i = 0; i < kM; ++i) x[i] = load<4>(a + (ty * kM + i) * kRow<kDepth> + d);
#pragma unroll
    for (int j = 0; j < kN; ++j) y[j] = load<4>(b + (tx + kSide * j) * kRow<kDepth> + d);
#pragma unroll
    for (int w = 0; w < 4; ++w) {
#pragma unroll
      for (int i = 0; i < kM; ++i) {
#pragma unroll
        for (int j = 0; j < kN; ++j) {
          products[i][j] = fmaf(x[i].at[w], y[j].at[w], products[i][j]);
        }
      }
    }
  }
}

// sums[i] += weight * row
template <int kM, int kDepth>
__device__ void add_row(RowSums<kM, kDepth>& sums, const float (&weights)[kM], const float* row,
                        int tx) {
#pragma unroll
  for (int c = 0; c < RowSums<kM, kDepth>::kQuads; ++c) {
    Pack<4> const x = load<4>(row + 64 * c + 4 * tx);
#pragma unroll
    for (int i = 0; i < kM; ++i) {
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        sums.at[i][c].at[w] = fmaf(weights[i], x.at[w], sums.at[i][c].at[w]);
      }
    }
  }
}

// sums[i] += the sum over k < kInner of weights[ty kM + i][k] b[k].
template <int kM, int kInner, int kDepth>
__device__ void add_products(RowSums<kM, kDepth>& sums, const float* weights, const float* b,
                             int ty, int tx) {
#pragma unroll 1
  for (int k = 0; k < kInner; k += 4) {
    Pack<4> four[kM];
#pragma unroll
    for (int i = 0; i < kM; ++i) four[i] = load<4>(weights + (ty * kM + i) * kRow<kInner> + k);
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      float weight[kM];
#pragma unroll
      for (int i = 0; i < kM; ++i) weight[i] = four[i].at[w];
      add_row<kM, kDepth>(sums, weight, b + (k + w) * kRow<kDepth>, tx);
    }
  }
}

// sums[i] += the sum over q < kInner of weights[q][ty kM + i] b[q]; weights has kM x 16 columns.
template <int kM, int kInner, int kDepth>
__device__ void add_products_transposed(RowSums<kM, kDepth>& sums, const float* weights,
                                        const float* b, int ty, int tx) {
#pragma unroll 2
  for (int q = 0; q < kInner; ++q) {
    Pack<kM> const column = load<kM>(weights + q * kRow<kM * kSide> + ty * kM);
    add_row<kM, kDepth>(sums, column.at, b + q * kRow<kDepth>, tx);
  }
}

// Sum and maximum over the 16 threads of one ty, known to all of them. The maximum passes by a NaN:
// the exponentials carry it.
__device__ inline float sum_over_keys(float x) {
  for (int step = kSide / 2; step > 0; step /= 2) x += __shfl_xor_sync(kAllLanes, x, step);
  return x;
}
__device__ inline float most_over_keys(float x) {
  for (int step = kSide / 2; step > 0; step /= 2) {
    float const other = __shfl_xor_sync(kAllLanes, x, step);
    x = other > x ? other : x;
  }
  return x;
}

// factors (kQueries, kKeys) of the scores of queries from `query` and keys from `key` on.
template <int kQueries, int kKeys>
__device__ void load_factors(float* factors, const KeepMask& mask, std::uint64_t head, int query,
                             int key, int T) {
  constexpr int kShare = kTileThreads / kQueries;  // threads of one query
  int const q = static_cast<int>(threadIdx.x) / kShare;
  std::uint64_t const first = head + static_cast<std::uint64_t>(query + q) * T + key;
  std::uint64_t const group = first >> 2;
  int const skip = static_cast<int>(first & 3);
  for (int g = static_cast<int>(threadIdx.x) % kShare; 4 * g < kKeys + skip; g += kShare) {
    Pack<4> const four = mask.factors(group + static_cast<std::uint64_t>(g));
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      int const k = 4 * g + w - skip;
      if (k >= 0 && k < kKeys) factors[q * kRow<kKeys> + k] = four.at[w];
    }
  }
}

}  // namespace copus::cuda
