#include "copus/backend/attention_kernel.h"

namespace copus {

std::string own_kernel_reason(const AttentionTask& task) {
  std::string reason = cudnn_refusal(task);
  return reason.empty() ? cudnn_problem() : reason;
}

std::string attention_words(const AttentionTask& task) {
  std::string const reason = own_kernel_reason(task);
  if (reason.empty()) return "attention by cuDNN " + cudnn_version();
  return "attention by our own kernel: " + reason;
}

}  // namespace copus
