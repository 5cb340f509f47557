// The arguments of attention, checked and turned into what its kernels take.
#pragma once
#include <string>

#include "backend/cuda/attention_tiles.cuh"
#include "copus/backend/attention_kernel.h"

namespace copus::cuda {

inline constexpr std::int64_t kWidestHead = 256;

template <class T>
Heads<T> heads_of(const TensorView& x) {
  COPUS_CHECK(x.dtype == kDTypeOf<T>, "attention's operands are of one type");
  return {x.ptr<T>(), x.stride[0], x.stride[1], x.stride[2]};
}

inline bool heads_in_fours(const TensorView& x) {
  auto const fours = [&](int dim) { return x.size[dim] <= 1 || x.stride[dim] % 4 == 0; };
  return aligned16(x.data) && x.size[3] % 4 == 0 && fours(0) && fours(1) && fours(2);
}

inline AttentionSizes sizes_of(const TensorView& q, const TensorView& k, const TensorView& v,
                               const AttentionOptions& options) {
  auto const rows = [](const TensorView& x) {
    return x.dims == 4 && (x.size[3] == 1 || x.stride[3] == 1);
  };
  COPUS_CHECK(rows(q) && rows(k) && rows(v), "q (B, T, H, D); k, v (B, T, K, D)");
  COPUS_CHECK(k.size == v.size && q.size[0] == k.size[0] && q.size[1] == k.size[1] &&
                  q.size[3] == k.size[3] && (k.size[2] > 0 && q.size[2] % k.size[2] == 0),
              "heads are whole groups of kv heads");
  COPUS_CHECK(q.size[1] < (1 << 30) && q.size[0] <= 65535, "sizes that fit a grid");
  return {static_cast<int>(q.size[1]),
          static_cast<int>(q.size[2]),
          static_cast<int>(k.size[2]),
          static_cast<int>(q.size[3]),
          options.scale,
          heads_in_fours(q) && heads_in_fours(k) && heads_in_fours(v)};
}

inline AttentionTask task_of(const TensorView& q, const AttentionOptions& options) {
  return {q.dtype, q.size[3], options.dropout.p > 0.0f};
}

inline AttentionDropout dropout_of(const AttentionOptions& o) {
  return {KeepMask(o.dropout), o.dropout.p > 0.0f, o.dropout.first, o.first_head, o.global_heads};
}

// The user's choice of a model, so the user is told.
[[noreturn]] inline void refuse_head_width(std::int64_t width) {
  throw ConfigError("model.hidden / model.heads: heads of " + std::to_string(width) +
                    " are not accepted on cuda; at most " + std::to_string(kWidestHead));
}

}  // namespace copus::cuda
