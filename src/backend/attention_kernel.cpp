#include "copus/backend/attention_kernel.h"

namespace copus {

std::string own_kernel_reason(const AttentionTask& task) {
  constexpr std::int64_t kWidest = 128, kStep = 8;
  if (task.type != DType::bf16) return "cuDNN's takes bf16";
  // Its random numbers are not ours, and the layout would change them.
  if (task.drops) return "cuDNN's has dropout masks of its own";
  if (task.head_width % kStep != 0 || task.head_width > kWidest) {
    return "cuDNN's takes heads of a multiple of " + std::to_string(kStep) + " up to " +
           std::to_string(kWidest) + ", not of " + std::to_string(task.head_width);
  }
  return cudnn_problem();
}

std::string attention_words(const AttentionTask& task) {
  std::string const reason = own_kernel_reason(task);
  if (reason.empty()) return "attention by cuDNN " + cudnn_version();
  return "attention by our own kernel: " + reason;
}

std::int64_t fused_attention_bytes(std::int64_t batch, std::int64_t heads, std::int64_t tokens,
                                   std::int64_t head_width) {
  constexpr std::int64_t kTile = 128, kBytes = 2, kStatistics = 8, kBeside = 1 << 16;
  std::int64_t const whole = (tokens + kTile - 1) / kTile * kTile;
  return batch * heads * whole * (kBytes * (whole + 2 * head_width) + kStatistics) + kBeside;
}

}  // namespace copus
