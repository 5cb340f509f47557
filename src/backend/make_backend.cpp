#include "copus/backend/make_backend.h"

#include <fmt/format.h>

#include "copus/core/error.h"

namespace copus {

std::unique_ptr<Backend> make_backend(DeviceChoice device, int threads) {
  if (device == DeviceChoice::cpu) return make_cpu_backend(threads);
  std::string const problem = cuda_problem();
  if (problem.empty()) return make_cuda_backend(0);
  if (device == DeviceChoice::cuda) {
    throw ConfigError(fmt::format("device: cuda: {}; accepted here: cpu, auto", problem));
  }
  return make_cpu_backend(threads);
}

}  // namespace copus
