#include "copus/parallel/flops.h"

#include "copus/parallel/params.h"

namespace copus {

double flops_per_token(const ModelConfig& model) {
  return 6.0 * static_cast<double>(matmul_parameter_count(model)) +
         12.0 * static_cast<double>(model.layers * model.hidden * model.seq_len);
}

}  // namespace copus
