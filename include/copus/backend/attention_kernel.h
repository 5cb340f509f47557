// Which kernel computes attention on a GPU: cuDNN's fused one, by a plain rule, or our own.
#pragma once
#include <cstdint>
#include <string>

#include "copus/core/dtype.h"

namespace copus {

// What the rule looks at.
struct AttentionTask {
  DType type = DType::f32;  // of q, k, v
  std::int64_t head_width = 0;
  bool drops = false;  // dropout on the probabilities
};

// Why our own kernel takes it, in words; empty where cuDNN's does.
std::string own_kernel_reason(const AttentionTask& task);
// The same for the log: "attention by cuDNN 9.19.0", "attention by our own kernel: ...".
std::string attention_words(const AttentionTask& task);

// The most that cuDNN's kernels ask for beside their operands, in bytes. A layer's backward holds
// the gradient of its scores in bf16, in whole tiles, which is what lets it add in a fixed order,
// and those of keys and values for every head.
std::int64_t fused_attention_bytes(std::int64_t batch, std::int64_t heads, std::int64_t tokens,
                                   std::int64_t head_width);

// Why this program cannot use cuDNN, in words; empty where it can.
std::string cudnn_problem();
std::string cudnn_version();  // "9.19.0"; "none" without it

}  // namespace copus
