#include <array>
#include <limits>

#include "backend/cpu/attention_heads.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/parallel_for.h"

namespace copus {
namespace {

using namespace detail;

// scores become probabilities, d_p becomes d_score = p (d_p - along).
void softmax_backward_row(float* scores, float* d_p, std::int64_t vectors, float lse, float along) {
  std::int64_t const n = vectors * kLanes;
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    float const p = math::exp(scores[i] - lse);
    scores[i] = p;
    d_p[i] = p * (d_p[i] - along);
  }
}

// The same where dropout multiplied the probabilities by `factors`.
void softmax_backward_row(float* scores, float* d_p, const float* factors, std::int64_t vectors,
                          float lse, float along) {
  std::int64_t const n = vectors * kLanes;
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    float const p = math::exp(scores[i] - lse), factor = factors[i];
    scores[i] = p * factor;
    d_p[i] = p * (d_p[i] * factor - along);
  }
}

float dot(const float* a, const float* b, std::int64_t n) {
  float total = 0.0f;
#pragma omp simd reduction(+ : total)
  for (std::int64_t i = 0; i < n; ++i) total = std::fma(a[i], b[i], total);
  return total;
}

struct BackwardHead {
  Head d_q, d_k, d_v, d_out, q, k, v, out;
  const float* lse;
};

// P = exp(scores - lse), dP = d_out v^T, dS = P (dP - d_out . out): the softmax's gradient, with
// the dot product in place of the sum over keys of P dP. Adds to d_k and d_v, writes d_q.
void backward_block(const Block& block, const Sizes& s, const BackwardHead& head,
                    const AttentionOptions& o, const HeadMask* mask, float* work) {
  float* const p = work;
  float* const d_p = work + kQueries * whole_vectors(s.T);
  float* const factors = work + 2 * kQueries * whole_vectors(s.T);
  score(p, block, s.D, o.scale, head.q, head.k);
  Gemm::run_alone(
      {false, true, block.rows, block.keys, s.D, head.d_out.stride, head.v.stride, block.stride},
      1.0f, head.d_out.row(block.first), head.v.data, 0.0f, d_p);
  for (std::int64_t i = 0; i < block.rows; ++i) {
    std::int64_t const query = block.first + i, seen = query + 1, padded = whole_vectors(seen);
    float* const probability = p + i * block.stride;
    float* const d_score = d_p + i * block.stride;
    std::fill(probability + seen, probability + padded, -std::numeric_limits<float>::infinity());
    std::fill(d_score + seen, d_score + padded, 0.0f);
    float const along = dot(head.d_out.row(query), head.out.row(query), s.D);
    if (mask == nullptr) {
      softmax_backward_row(probability, d_score, padded / kLanes, head.lse[query], along);
    } else {
      mask->factors(factors, query, padded);
      softmax_backward_row(probability, d_score, factors, padded / kLanes, head.lse[query], along);
    }
    std::fill(probability + padded, probability + block.stride, 0.0f);
    std::fill(d_score + padded, d_score + block.stride, 0.0f);
  }
  Gemm::run_alone(
      {true, false, block.keys, s.D, block.rows, block.stride, head.d_out.stride, head.d_v.stride},
      1.0f, p, head.d_out.row(block.first), 1.0f, head.d_v.data);
  Gemm::run_alone(
      {false, false, block.rows, s.D, block.keys, block.stride, head.k.stride, head.d_q.stride},
      o.scale, d_p, head.k.data, 0.0f, head.d_q.row(block.first));
  Gemm::run_alone(
      {true, false, block.keys, s.D, block.rows, block.stride, head.q.stride, head.d_k.stride},
      o.scale, d_p, head.q.row(block.first), 1.0f, head.d_k.data);
}

void zero_rows(const Head& x, std::int64_t T, std::int64_t D) {
  for (std::int64_t t = 0; t < T; ++t) std::fill(x.row(t), x.row(t) + D, 0.0f);
}

std::int64_t backward_work(const Sizes& s) {
  return (2 * kQueries + 1) * whole_vectors(s.T);
}

// Queries of a head in the blocks [begin, end) against its kv head's keys; adds to d_k and d_v.
void backward_head(const Sizes& s, const BackwardHead& head, std::int64_t b, std::int64_t h,
                   std::int64_t begin, std::int64_t end, const AttentionOptions& options,
                   float* work) {
  HeadMask const mask(options, s, b, h);
  for (std::int64_t i = begin; i < end; ++i) {
    backward_block(Block(i, s), s, head, options, options.dropout.p > 0.0f ? &mask : nullptr, work);
  }
}

struct Gradients {
  TensorView d_q, d_k, d_v;
};

constexpr int kWideBackward = 8;  // heads held as fp32 at a time

// One run of blocks of all heads of a kv head: they add to one d_k and d_v in one order.
struct BackwardItem {
  std::int64_t b, kv, begin, end;
  Head d_k, d_v;  // fp32; in bf16 none where there is one run, whose sums are stored at once
};

void backward_group(const Sizes& s, const Gradients& d, const Saved& saved,
                    const BackwardItem& item, const AttentionOptions& options, float* work) {
  std::int64_t const b = item.b, kv = item.kv, begin = item.begin, end = item.end;
  Head const d_k = item.d_k, d_v = item.d_v;
  std::int64_t const group = s.H / s.K, keys = std::min(s.T, end * kQueries);
  zero_rows(d_k, keys, s.D);
  zero_rows(d_v, keys, s.D);
  for (std::int64_t h = kv * group; h < (kv + 1) * group; ++h) {
    BackwardHead const head{head_of(d.d_q, b, h),
                            d_k,
                            d_v,
                            head_of(saved.d_out, b, h),
                            head_of(saved.q, b, h),
                            head_of(saved.k, b, kv),
                            head_of(saved.v, b, kv),
                            head_of(saved.out, b, h),
                            saved.lse + (b * s.H + h) * s.T};
    backward_head(s, head, b, h, begin, end, options, work);
  }
}

void wide_backward_group(const Sizes& s, const Gradients& d, const Saved& saved,
                         const BackwardItem& item, const AttentionOptions& options, float* work) {
  std::int64_t const b = item.b, kv = item.kv, begin = item.begin, end = item.end;
  WideHeads const wide(work, s.T, s.D);
  bool const stores = item.d_k.data == nullptr;
  Head const d_k = stores ? wide.at(6) : item.d_k, d_v = stores ? wide.at(7) : item.d_v;
  std::int64_t const first = begin * kQueries, last = std::min(s.T, end * kQueries);
  Head const keys = wide.load(0, saved.k, b, kv, 0, last),
             values = wide.load(1, saved.v, b, kv, 0, last);
  zero_rows(d_k, last, s.D);
  zero_rows(d_v, last, s.D);
  std::int64_t const group = s.H / s.K;
  for (std::int64_t h = kv * group; h < (kv + 1) * group; ++h) {
    BackwardHead const head{wide.at(2),
                            d_k,
                            d_v,
                            wide.load(3, saved.d_out, b, h, first, last),
                            wide.load(4, saved.q, b, h, first, last),
                            keys,
                            values,
                            wide.load(5, saved.out, b, h, first, last),
                            saved.lse + (b * s.H + h) * s.T};
    backward_head(s, head, b, h, begin, end, options, work + kWideBackward * s.T * s.D);
    wide.store(2, d.d_q, b, h, first, last);
  }
  if (!stores) return;
  wide.store(6, d.d_k, b, kv, 0, s.T);
  wide.store(7, d.d_v, b, kv, 0, s.T);
}

// Sums of d_k and d_v over the runs of a kv head, in the order of the runs.
class PartialSums {
 public:
  PartialSums(const Sizes& s, const Runs& runs, float* data) : s_(s), runs_(runs), data_(data) {}
  static std::int64_t floats(const Sizes& s, const Runs& runs) {
    return s.B * s.K * runs.count * 2 * s.T * s.D;
  }
  Head d_k(std::int64_t item) const { return {data_ + 2 * item * s_.T * s_.D, s_.D}; }
  Head d_v(std::int64_t item) const { return {data_ + (2 * item + 1) * s_.T * s_.D, s_.D}; }

  // Rows [first, last) of one kv head, into both outputs.
  void write(const TensorView& d_k_out, const TensorView& d_v_out, std::int64_t b, std::int64_t kv,
             std::int64_t first, std::int64_t last) const {
    with_compute_type(d_k_out.dtype, [&]<class T>(T) {
      for (std::int64_t t = first; t < last; ++t) {
        write_row<T>(d_k_out, b, kv, t, [&](std::int64_t item) { return d_k(item); });
        write_row<T>(d_v_out, b, kv, t, [&](std::int64_t item) { return d_v(item); });
      }
    });
  }

 private:
  template <class T, class Part>
  void write_row(const TensorView& out, std::int64_t b, std::int64_t kv, std::int64_t t,
                 const Part& part) const {
    T* const to = out.ptr<T>() + b * out.stride[0] + t * out.stride[1] + kv * out.stride[2];
    std::int64_t const item = (b * s_.K + kv) * runs_.count, end = item + runs_.count;
    // The first run whose queries see this key.
    std::int64_t seeing = 0;
    while (runs_.begin(seeing + 1) * kQueries <= t) ++seeing;
    float* const sum = part(end - 1).row(t);  // of the last run, which sees all
    for (std::int64_t i = item + seeing; i + 1 < end; ++i) {
      const float* const x = part(i).row(t);
#pragma omp simd
      for (std::int64_t d = 0; d < s_.D; ++d) sum[d] += x[d];
    }
#pragma omp simd
    for (std::int64_t d = 0; d < s_.D; ++d) put(to[d], sum[d]);
  }

  const Sizes& s_;
  const Runs& runs_;
  float* data_;
};

}  // namespace

void CpuBackend::attention_backward(TensorView d_q, TensorView d_k, TensorView d_v,
                                    const TensorView& d_out, const TensorView& q,
                                    const TensorView& k, const TensorView& v, const TensorView& out,
                                    const TensorView& lse, const AttentionOptions& options) {
  Sizes const s = sizes_of(q, k, v);
  COPUS_CHECK(d_q.size == q.size && d_k.size == k.size && d_v.size == v.size &&
                  d_out.size == q.size && out.size == q.size,
              "gradients have the sizes of what they belong to");
  for (const TensorView& x : std::array{d_q, d_k, d_v, d_out, out})
    COPUS_CHECK(x.dtype == q.dtype, "and its type");
  COPUS_CHECK(lse.contiguous() && lse.dtype == DType::f32 && lse.numel() == s.B * s.H * s.T,
              "lse (B, H, T)");
  bool const half = q.dtype == DType::bf16;
  Runs const runs(s, s.B * s.K);
  bool const apart = runs.count > 1;
  std::int64_t const floats = backward_work(s) + (half ? kWideBackward * s.T * s.D : 0);
  std::int64_t const sum_floats = apart ? PartialSums::floats(s, runs) : 0;
  float* const sums = scratch(sum_floats + threads_ * floats);
  float* const work = sums + sum_floats;
  PartialSums const partial(s, runs, sums);
  Gradients const gradients{d_q, d_k, d_v};
  Saved const saved{d_out, q, k, v, out, lse.ptr<float>()};
  parallel_for_uneven(threads_, s.B * s.K * runs.count, [&](int worker, std::int64_t item) {
    std::int64_t const head = item / runs.count, run = item % runs.count;
    std::int64_t const b = head / s.K, kv = head % s.K;
    BackwardItem part{b, kv, runs.begin(run), runs.begin(run + 1), {}, {}};
    if (apart) {
      part.d_k = partial.d_k(item), part.d_v = partial.d_v(item);
    } else if (!half) {
      part.d_k = head_of(d_k, b, kv), part.d_v = head_of(d_v, b, kv);
    }
    auto const& group = half ? wide_backward_group : backward_group;
    group(s, gradients, saved, part, options, work + worker * floats);
  });
  if (!apart) return;
  std::int64_t const blocks = s.blocks();
  parallel_for(threads_, s.B * s.K * blocks, [&](int, std::int64_t item) {
    std::int64_t const head = item / blocks, first = item % blocks * kQueries;
    partial.write(d_k, d_v, head / s.K, head % s.K, first, std::min(s.T, first + kQueries));
  });
}

}  // namespace copus
