// For tests that need a GPU: the backend, or a line that says aloud why there is none.
#pragma once
#include <catch2/catch.hpp>
#include <memory>
#include <string>

#include "copus/backend/backend.h"

namespace copus::test {

// Null where there is no GPU; then the test has said so and ends.
inline std::unique_ptr<Backend> gpu_or_skip() {
  std::string const problem = cuda_problem();
  if (problem.empty()) return make_cuda_backend(0);
  WARN("SKIPPED: no GPU (" << problem << ")");
  return nullptr;
}

}  // namespace copus::test
