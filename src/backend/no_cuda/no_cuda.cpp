// What stands in for the CUDA backend in a build without it.
#include "copus/backend/attention_kernel.h"
#include "copus/backend/backend.h"
#include "copus/backend/device.h"
#include "copus/core/error.h"

namespace copus {

CudaFacts cuda_facts() {
  return {};
}

std::string cudnn_problem() {
  return "this program was built without CUDA (COPUS_CUDA)";
}

std::string cudnn_version() {
  return "none";
}

std::unique_ptr<Backend> make_cuda_backend(int index) {
  throw CudaError(gpu_problem(cuda_facts(), index));
}

}  // namespace copus
