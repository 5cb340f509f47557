// How fast each operation is on this machine, at the sizes of a GPT-2 124M training step.
#pragma once
#include <string>
#include <vector>

#include "copus/backend/backend.h"

namespace copus {

struct OpRate {
  std::string name;
  double seconds = 0.0;  // the fastest of the repeats
  double flops = 0.0;    // of matrix products and attention, else 0
  double bytes = 0.0;    // each input read and each output written once
  // FLOP/s where the operation counts flops, else bytes/s.
  double rate() const { return (flops > 0.0 ? flops : bytes) / seconds; }
};

// Every operation of the backend, N = 1024 tokens (B 4, T 256), each the fastest of `repeats` after
// one that is not counted. Needs about 1 GiB. Inputs stay where a repeat left them: what fits a
// cache is measured in it, as it is within a training step.
std::vector<OpRate> bench_ops(Backend& backend, int repeats);
// Of those, "attention" and "attention_backward" (without dropout) and "rope".
std::vector<OpRate> bench_attention(Backend& backend, int repeats);

}  // namespace copus
