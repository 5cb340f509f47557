// What stands in for the CUDA backend in a build without it.
#include "copus/backend/backend.h"
#include "copus/core/error.h"

namespace copus {

std::string cuda_problem() {
  return "this program was built without CUDA";
}

std::unique_ptr<Backend> make_cuda_backend(int) {
  throw CudaError(cuda_problem());
}

}  // namespace copus
