// The twin of cuda/ranges.cpp in a build without CUDA.
#include "copus/backend/ranges.h"

namespace copus {

Range::Range(const char*) {}
Range::Range(const char*, std::int64_t) {}
Range::Range(const char*, const char*) {}
Range::~Range() {}

}  // namespace copus
