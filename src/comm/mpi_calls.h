// What MPI's calls say when they fail.
#pragma once
#include <fmt/format.h>
#include <mpi.h>

#include "copus/core/error.h"

namespace copus::detail {

inline void mpi_check(int code, const char* call, const char* file, int line) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw CommError(fmt::format("{}:{}: {} failed: {}", file, line, call, text));
}

}  // namespace copus::detail

#define MPI_CHECK(call) copus::detail::mpi_check(call, #call, __FILE__, __LINE__)
