#include "copus/core/attention_task.h"

namespace copus {

std::string cudnn_refusal(const AttentionTask& task) {
  constexpr std::int64_t kWidest = 128, kStep = 8;
  if (task.type != DType::bf16) return "cuDNN's takes bf16";
  // Its random numbers are not ours, and the layout would change them.
  if (task.drops) return "cuDNN's has dropout masks of its own";
  if (task.head_width % kStep != 0 || task.head_width > kWidest) {
    return "cuDNN's takes heads of a multiple of " + std::to_string(kStep) + " up to " +
           std::to_string(kWidest) + ", not of " + std::to_string(task.head_width);
  }
  return "";
}

std::int64_t fused_attention_bytes(const AttentionShape& s) {
  constexpr std::int64_t kTile = 128, kBytes = 2, kStatistics = 8, kBeside = 1 << 16;
  std::int64_t const whole = (s.tokens + kTile - 1) / kTile * kTile;
  std::int64_t const keys_and_values = s.kv_heads < s.heads ? 2 * s.head_width : 0;
  return s.batch * s.heads * whole * (kBytes * (whole + keys_and_values) + kStatistics) + kBeside;
}

}  // namespace copus
