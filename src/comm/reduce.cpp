#include "comm/reduce.h"

#include <cstring>

#include "copus/core/error.h"
#include "copus/core/math.h"

namespace copus {
namespace {

constexpr std::int64_t kBlock =
    4096;  // elements: all ranks' blocks and the sum stay in the first-level cache

template <class T, ReduceOp kOp>
void fold_block(T* sum, const std::vector<void*>& buffers, std::int64_t at, std::int64_t count) {
  std::memcpy(sum, static_cast<const T*>(buffers[0]) + at,
              static_cast<std::size_t>(count) * sizeof(T));
  for (std::size_t r = 1; r < buffers.size(); ++r) {
    const T* const x = static_cast<const T*>(buffers[r]) + at;
    for (std::int64_t i = 0; i < count; ++i) sum[i] = fold(sum[i], x[i], kOp);
  }
}

template <class T>
void fold_block(T* sum, const std::vector<void*>& buffers, ReduceOp op, std::int64_t at,
                std::int64_t count) {
  if (op == ReduceOp::sum) return fold_block<T, ReduceOp::sum>(sum, buffers, at, count);
  if (op == ReduceOp::max) return fold_block<T, ReduceOp::max>(sum, buffers, at, count);
  fold_block<T, ReduceOp::min>(sum, buffers, at, count);
}

// bf16: widened, folded in fp32.
void fold_block(float* sum, float* other, const std::vector<void*>& buffers, ReduceOp op,
                std::int64_t at, std::int64_t count) {
  widen(sum, static_cast<const Bf16*>(buffers[0]) + at, count);
  for (std::size_t r = 1; r < buffers.size(); ++r) {
    widen(other, static_cast<const Bf16*>(buffers[r]) + at, count);
    fold_to_first(sum, other, DType::f32, op, count);
  }
}

void bf16_into_all(const std::vector<void*>& buffers, ReduceOp op, std::int64_t begin,
                   std::int64_t end) {
  float sum[kBlock], other[kBlock];
  Bf16 rounded[kBlock];
  for (std::int64_t at = begin; at < end; at += kBlock) {
    std::int64_t const count = std::min(kBlock, end - at);
    fold_block(sum, other, buffers, op, at, count);
    round_to(rounded, sum, count);
    for (void* buffer : buffers) {
      std::memcpy(static_cast<Bf16*>(buffer) + at, rounded,
                  static_cast<std::size_t>(count) * sizeof(Bf16));
    }
  }
}

void bf16_to_one(Bf16* out, const std::vector<void*>& buffers, std::int64_t begin,
                 std::int64_t count) {
  float sum[kBlock], other[kBlock];
  for (std::int64_t at = 0; at < count; at += kBlock) {
    std::int64_t const n = std::min(kBlock, count - at);
    fold_block(sum, other, buffers, ReduceOp::sum, begin + at, n);
    round_to(out + at, sum, n);
  }
}

template <class T>
void into_all(const std::vector<void*>& buffers, ReduceOp op, std::int64_t begin,
              std::int64_t end) {
  T sum[kBlock];
  for (std::int64_t at = begin; at < end; at += kBlock) {
    std::int64_t const count = std::min(kBlock, end - at);
    fold_block(sum, buffers, op, at, count);
    for (void* buffer : buffers) {
      std::memcpy(static_cast<T*>(buffer) + at, sum, static_cast<std::size_t>(count) * sizeof(T));
    }
  }
}

template <class T>
void to_one(T* out, const std::vector<void*>& buffers, std::int64_t begin, std::int64_t count) {
  T sum[kBlock];
  for (std::int64_t at = 0; at < count; at += kBlock) {
    std::int64_t const n = std::min(kBlock, count - at);
    fold_block(sum, buffers, ReduceOp::sum, begin + at, n);
    std::memcpy(out + at, sum, static_cast<std::size_t>(n) * sizeof(T));
  }
}

template <class T, ReduceOp kOp>
void to_first(T* x, const T* y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) x[i] = fold(x[i], y[i], kOp);
}

template <class T>
void to_first(T* x, const T* y, ReduceOp op, std::int64_t count) {
  if (op == ReduceOp::sum) return to_first<T, ReduceOp::sum>(x, y, count);
  if (op == ReduceOp::max) return to_first<T, ReduceOp::max>(x, y, count);
  to_first<T, ReduceOp::min>(x, y, count);
}

}  // namespace

void widen(float* out, const Bf16* x, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = math::from_bf16(x[i].bits);
}

void round_to(Bf16* out, const float* x, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) out[i].bits = math::to_bf16(x[i]);
}

void fold_to_first(void* x, const void* y, DType dtype, ReduceOp op, std::int64_t count) {
  if (dtype == DType::f32)
    return to_first(static_cast<float*>(x), static_cast<const float*>(y), op, count);
  COPUS_CHECK(dtype == DType::i32, "reductions are of f32 and i32");
  to_first(static_cast<std::int32_t*>(x), static_cast<const std::int32_t*>(y), op, count);
}

void fold_into_all(const std::vector<void*>& buffers, DType dtype, ReduceOp op, std::int64_t begin,
                   std::int64_t end) {
  if (dtype == DType::f32) return into_all<float>(buffers, op, begin, end);
  if (dtype == DType::bf16) return bf16_into_all(buffers, op, begin, end);
  COPUS_CHECK(dtype == DType::i32, "reductions are of f32, bf16 and i32");
  into_all<std::int32_t>(buffers, op, begin, end);
}

void fold_to(void* out, const std::vector<void*>& buffers, DType dtype, std::int64_t begin,
             std::int64_t count) {
  if (dtype == DType::f32) return to_one(static_cast<float*>(out), buffers, begin, count);
  if (dtype == DType::bf16) return bf16_to_one(static_cast<Bf16*>(out), buffers, begin, count);
  COPUS_CHECK(dtype == DType::i32, "reductions are of f32, bf16 and i32");
  to_one(static_cast<std::int32_t*>(out), buffers, begin, count);
}

}  // namespace copus
