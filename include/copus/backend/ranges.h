// Named stretches of a thread's time, as nsys shows them on its timeline and ncu filters by them.
#pragma once
#include <cstdint>

namespace copus {

// From here to the end of its scope; ranges nest. Without a profiler, or without CUDA in this
// build, it does nothing.
class Range {
 public:
  explicit Range(const char* name);
  Range(const char* name, std::int64_t number);  // "forward of layer 7"
  Range(const char* group, const char* name);    // "dp all_reduce"
  ~Range();
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
};

}  // namespace copus
