#include "backend/cpu/cpu_backend.h"

#include <sched.h>

#include <algorithm>

#include "backend/cpu/parallel_for.h"
#include "copus/core/error.h"

namespace copus {
namespace {

int processors_of_this_process() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

}  // namespace

CpuBackend::CpuBackend(int threads, bool widens_bf16)
    : threads_(threads == 0 ? processors_of_this_process() : threads),
      widens_bf16_(widens_bf16 || !Gemm::has_bf16()),
      gemm_(threads_) {
  COPUS_CHECK(threads >= 0, "a number of threads");
  use_threads(threads_);
}

CpuBackend::~CpuBackend() {
  if (scratch_ != nullptr) deallocate(scratch_, scratch_bytes_);
}

std::string CpuBackend::name() const {
  return "cpu";
}

float* CpuBackend::scratch(std::int64_t floats) {
  std::int64_t const bytes = floats * static_cast<std::int64_t>(sizeof(float));
  if (bytes > scratch_bytes_) {
    std::byte* const larger = allocate(bytes);
    if (scratch_ != nullptr) deallocate(scratch_, scratch_bytes_);
    scratch_ = larger;
    scratch_bytes_ = bytes;
  }
  return reinterpret_cast<float*>(scratch_);
}

std::string cpu_bf16_problem() {
  if (Gemm::has_bf16()) return "";
  return "this CPU, or this build without oneDNN, has no bf16 products (AVX512_BF16)";
}

std::unique_ptr<Backend> make_cpu_backend(int threads, bool widens_bf16) {
  return std::make_unique<CpuBackend>(threads, widens_bf16);
}

}  // namespace copus
