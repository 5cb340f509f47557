#include <limits>

#include "backend/cpu/attention_heads.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/parallel_for.h"

namespace copus {
namespace {

using namespace detail;

// scores (whole vectors of -inf after the last key) become exp(score - max); returns the log of
// their sum and puts the sum into `sum`.
float softmax_row(float* scores, std::int64_t vectors, float& sum) {
  std::int64_t const n = vectors * kLanes;
  float most = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : most)
  for (std::int64_t i = 0; i < n; ++i) most = scores[i] > most ? scores[i] : most;
  float total = 0.0f;
#pragma omp simd reduction(+ : total)
  for (std::int64_t i = 0; i < n; ++i) {
    float const e = math::exp(scores[i] - most);
    scores[i] = e;
    total += e;
  }
  sum = total;
  return most + std::log(total);
}

struct ForwardHead {
  Head out, q, k, v;
  float* lse;
};

void forward_block(const Block& block, const Sizes& s, const ForwardHead& head,
                   const AttentionOptions& o, const HeadMask* mask, float* work) {
  float* const scores = work;
  float* const factors = work + kQueries * whole_vectors(s.T);
  float sums[kQueries];
  score(scores, block, s.D, o.scale, head.q, head.k);
  for (std::int64_t i = 0; i < block.rows; ++i) {
    float* const row = scores + i * block.stride;
    std::int64_t const seen = block.first + i + 1, padded = whole_vectors(seen);
    std::fill(row + seen, row + padded, -std::numeric_limits<float>::infinity());
    head.lse[block.first + i] = softmax_row(row, padded / kLanes, sums[i]);
    std::fill(row + padded, row + block.stride, 0.0f);
    if (mask != nullptr) {
      mask->factors(factors, block.first + i, padded);
      multiply(row, factors, padded / kLanes);
    }
  }
  Gemm::run_alone(
      {false, false, block.rows, s.D, block.keys, block.stride, head.v.stride, head.out.stride},
      1.0f, scores, head.v.data, 0.0f, head.out.row(block.first));
  // Dividing D outputs is cheaper than T probabilities.
  for (std::int64_t i = 0; i < block.rows; ++i) {
    float* const row = head.out.row(block.first + i);
    float const scale = 1.0f / sums[i];
#pragma omp simd
    for (std::int64_t d = 0; d < s.D; ++d) row[d] *= scale;
  }
}

std::int64_t forward_work(const Sizes& s) {
  return (kQueries + 1) * whole_vectors(s.T);
}

constexpr int kWideForward = 4;  // heads held as fp32 at a time

void wide_forward_head(const Sizes& s, const TensorView& out, const Saved& saved, std::int64_t b,
                       std::int64_t h, std::int64_t begin, std::int64_t end,
                       const AttentionOptions& options, float* work) {
  WideHeads const wide(work, s.T, s.D);
  std::int64_t const kv = h * s.K / s.H;
  std::int64_t const first = begin * kQueries, last = std::min(s.T, end * kQueries);
  ForwardHead const head{wide.at(0), wide.load(1, saved.q, b, h, first, last),
                         wide.load(2, saved.k, b, kv, 0, last),
                         wide.load(3, saved.v, b, kv, 0, last), saved.lse + (b * s.H + h) * s.T};
  HeadMask const mask(options, s, b, h);
  for (std::int64_t i = begin; i < end; ++i) {
    forward_block(Block(i, s), s, head, options, options.dropout.p > 0.0f ? &mask : nullptr,
                  work + kWideForward * s.T * s.D);
  }
  wide.store(0, out, b, h, first, last);
}

}  // namespace

void CpuBackend::attention(TensorView out, TensorView lse, const TensorView& q, const TensorView& k,
                           const TensorView& v, const AttentionOptions& options) {
  Sizes const s = sizes_of(q, k, v);
  COPUS_CHECK(out.size == q.size && out.dtype == q.dtype && lse.contiguous() &&
                  lse.dtype == DType::f32 && lse.numel() == s.B * s.H * s.T,
              "out as q, lse (B, H, T)");
  if (q.dtype == DType::bf16) {
    std::int64_t const floats = forward_work(s) + kWideForward * s.T * s.D;
    float* const work = scratch(threads_ * floats);
    Saved const saved{{}, q, k, v, out, lse.ptr<float>()};
    Runs const runs(s, s.B * s.H);
    parallel_for_uneven(threads_, s.B * s.H * runs.count, [&](int worker, std::int64_t item) {
      std::int64_t const head = item / runs.count, run = item % runs.count;
      wide_forward_head(s, out, saved, head / s.H, head % s.H, runs.begin(run), runs.begin(run + 1),
                        options, work + worker * floats);
    });
    return;
  }
  std::int64_t const floats = forward_work(s);
  float* const work = scratch(threads_ * floats);
  std::int64_t const blocks = s.blocks();
  parallel_for_uneven(threads_, s.B * s.H * blocks, [&](int worker, std::int64_t item) {
    std::int64_t const b = item / blocks / s.H, h = item / blocks % s.H, kv = h * s.K / s.H;
    // The long rows first, so that the short ones fill the gaps at the end.
    Block const block(blocks - 1 - item % blocks, s);
    ForwardHead const head{head_of(out, b, h), head_of(q, b, h), head_of(k, b, kv),
                           head_of(v, b, kv), lse.ptr<float>() + (b * s.H + h) * s.T};
    HeadMask const mask(options, s, b, h);
    forward_block(block, s, head, options, options.dropout.p > 0.0f ? &mask : nullptr,
                  work + worker * floats);
  });
}

}  // namespace copus
