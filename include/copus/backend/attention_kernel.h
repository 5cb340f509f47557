// Which kernel computes attention on a GPU: cuDNN's fused one, by a plain rule, or our own.
#pragma once
#include <string>

#include "copus/core/attention_task.h"

namespace copus {

// Why our own kernel takes it, in words; empty where cuDNN's does.
std::string own_kernel_reason(const AttentionTask& task);
// The same for the log: "attention by cuDNN 9.19.0", "attention by our own kernel: ...".
std::string attention_words(const AttentionTask& task);

// Why this program cannot use cuDNN, in words; empty where it can.
std::string cudnn_problem();
std::string cudnn_version();  // "9.19.0"; "none" without it

}  // namespace copus
