// What attention's forward and backward on the CPU share: heads of the tensors, blocks of queries,
// runs of blocks, their scores.
#pragma once
#include <algorithm>
#include <cmath>

#include "backend/compute_type.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/keep_mask.h"
#include "copus/backend/backend.h"
#include "copus/core/error.h"

namespace copus::detail {

constexpr std::int64_t kQueries = 64;  // rows of scores a worker holds, each as long as its keys

// Rows of scores are padded to whole vectors: a scalar remainder costs more than the row.
constexpr std::int64_t kLanes = 16;
inline std::int64_t whole_vectors(std::int64_t n) {
  return (n + kLanes - 1) / kLanes * kLanes;
}

// One head of one batch row: rows T apart by `stride`, of D elements.
struct Head {
  float* data = nullptr;
  std::int64_t stride = 0;
  float* row(std::int64_t t) const { return data + t * stride; }
};
inline Head head_of(const TensorView& x, std::int64_t b, std::int64_t h) {
  COPUS_CHECK(x.dtype == DType::f32, "heads are worked on as f32");
  return {x.ptr<float>() + b * x.stride[0] + h * x.stride[2], x.stride[1]};
}

// Heads stored as bf16 are worked on as fp32, one at a time: a head's rows are few against its
// scores.
class WideHeads {
 public:
  WideHeads(float* data, std::int64_t T, std::int64_t D) : data_(data), T_(T), D_(D) {}
  Head at(int place) const { return {data_ + place * T_ * D_, D_}; }
  // Rows [first, last).
  Head load(int place, const TensorView& x, std::int64_t b, std::int64_t h, std::int64_t first,
            std::int64_t last) const {
    for_rows(place, x, b, h, first, last, [&](float* wide, const Bf16* stored) {
#pragma omp simd
      for (std::int64_t d = 0; d < D_; ++d) wide[d] = get(stored[d]);
    });
    return at(place);
  }
  void store(int place, const TensorView& x, std::int64_t b, std::int64_t h, std::int64_t first,
             std::int64_t last) const {
    for_rows(place, x, b, h, first, last, [&](const float* wide, Bf16* stored) {
#pragma omp simd
      for (std::int64_t d = 0; d < D_; ++d) put(stored[d], wide[d]);
    });
  }

 private:
  template <class Body>
  void for_rows(int place, const TensorView& x, std::int64_t b, std::int64_t h, std::int64_t first,
                std::int64_t last, const Body& body) const {
    Bf16* const head = x.ptr<Bf16>() + b * x.stride[0] + h * x.stride[2];
    for (std::int64_t t = first; t < last; ++t) body(at(place).row(t), head + t * x.stride[1]);
  }

  float* data_;
  std::int64_t T_, D_;
};

struct Sizes {
  std::int64_t B, T, H, K, D;
  std::int64_t blocks() const { return (T + kQueries - 1) / kQueries; }
};
inline Sizes sizes_of(const TensorView& q, const TensorView& k, const TensorView& v) {
  auto const rows = [&](const TensorView& x) {
    return x.dims == 4 && x.dtype == q.dtype && (x.size[3] == 1 || x.stride[3] == 1);
  };
  COPUS_CHECK(rows(q) && rows(k) && rows(v), "q (B, T, H, D); k, v (B, T, K, D)");
  COPUS_CHECK(k.size == v.size && q.size[0] == k.size[0] && q.size[1] == k.size[1] &&
                  q.size[3] == k.size[3] && (k.size[2] > 0 && q.size[2] % k.size[2] == 0),
              "heads are whole groups of kv heads");
  return {q.size[0], q.size[1], q.size[2], k.size[2], q.size[3]};
}

// Which probabilities of one head's scores dropout keeps, row by row.
class HeadMask {
 public:
  HeadMask(const AttentionOptions& o, const Sizes& s, std::int64_t b, std::int64_t h)
      : mask_(o.dropout),
        first_(o.dropout.first +
               static_cast<std::uint64_t>((b * o.global_heads + o.first_head + h) * s.T * s.T)),
        length_(s.T) {}
  // out[key] for keys [0, n) of `query`.
  void factors(float* out, std::int64_t query, std::int64_t n) const {
    mask_.factors(out, first_ + static_cast<std::uint64_t>(query * length_), n);
  }

 private:
  KeepMask mask_;
  std::uint64_t first_;
  std::int64_t length_;
};

inline void multiply(float* x, const float* factors, std::int64_t vectors) {
  std::int64_t const n = vectors * kLanes;
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) x[i] *= factors[i];
}

// The queries [first, first + rows) of a head see the keys [0, keys).
struct Block {
  std::int64_t first, rows, keys, stride;
  Block(std::int64_t index, const Sizes& s)
      : first(index * kQueries),
        rows(std::min(kQueries, s.T - first)),
        keys(first + rows),
        stride(whole_vectors(keys)) {}
};

// scores (rows, stride) = scale q k^T
inline void score(float* scores, const Block& block, std::int64_t D, float scale, const Head& q,
                  const Head& k) {
  Gemm::run_alone({false, true, block.rows, block.keys, D, q.stride, k.stride, block.stride}, scale,
                  q.row(block.first), k.data, 0.0f, scores);
}

// A head's blocks of queries in a few runs of equal work (a block's work grows with its keys), so
// that few heads still keep many threads busy. How many follows from the sizes alone: sums over
// runs are then the same whatever the number of threads.
struct Runs {
  std::int64_t blocks = 0, count = 1;
  Runs(const Sizes& s, std::int64_t items) : blocks(s.blocks()) {
    constexpr std::int64_t kEnough = 24, kMost = 8;  // items of work; runs
    std::int64_t const wanted = items > 0 ? (kEnough + items - 1) / items : 1;
    count = std::max<std::int64_t>(1, std::min({wanted, kMost, blocks}));
  }
  // Blocks [begin(run), begin(run + 1)).
  std::int64_t begin(std::int64_t run) const {
    if (run == 0 || run == count) return run == 0 ? 0 : blocks;
    double const share = std::sqrt(static_cast<double>(run) / static_cast<double>(count));
    auto const near = static_cast<std::int64_t>(std::llround(share * static_cast<double>(blocks)));
    return std::clamp(near, run, blocks - count + run);  // at least one block a run
  }
};

// What a forward has read and written, and a backward reads again.
struct Saved {
  TensorView d_out, q, k, v, out;
  float* lse;
};

}  // namespace copus::detail
