// The twin of cuda/cudnn/fused_attention.cpp in a build with CUDA and without cuDNN.
#include "backend/cuda/fused_attention.h"
#include "copus/backend/attention_kernel.h"

namespace copus {

std::string cudnn_problem() {
  return "this program was built without cuDNN (COPUS_CUDNN)";
}

std::string cudnn_version() {
  return "none";
}

namespace cuda {

struct FusedAttention::State {};
FusedAttention::FusedAttention() = default;
FusedAttention::~FusedAttention() = default;

bool FusedAttention::forward(cudaStream_t, const AttentionTensors&, const AttentionRoom&) {
  return false;
}
bool FusedAttention::backward(cudaStream_t, const AttentionTensors&, const AttentionGradients&,
                              const AttentionRoom&) {
  return false;
}

}  // namespace cuda
}  // namespace copus
