// Attention as a task for a kernel: who may compute it, and what memory that takes beside the
// operands. Pure, for the plan of a run's memory asks it as the device does.
#pragma once
#include <cstdint>
#include <string>

#include "copus/core/dtype.h"

namespace copus {

// What a device has for attention beside our own kernels.
enum class AttentionLibrary : std::uint8_t { none, cudnn };

// What the choice of a kernel looks at.
struct AttentionTask {
  DType type = DType::f32;  // of q, k, v
  std::int64_t head_width = 0;
  bool drops = false;  // dropout on the probabilities
};

// Why cuDNN's kernels do not take it, in words; empty where they do.
std::string cudnn_refusal(const AttentionTask& task);

// Of one layer on one rank.
struct AttentionShape {
  std::int64_t batch = 0, heads = 0, kv_heads = 0, tokens = 0, head_width = 0;
};

// The most memory, in bytes, that attention by cuDNN takes beside its operands, 256-byte alignment
// and our dot product a row included. A layer's backward holds the gradient of its scores in bf16,
// in whole tiles, which is what lets it add in a fixed order, and with grouped heads those of keys
// and values for every head.
std::int64_t fused_attention_bytes(const AttentionShape& shape);

}  // namespace copus
