// Ranges by NVTX, whose calls return at once where no profiler has hooked them.
#include "copus/backend/ranges.h"

#include <nvtx3/nvToolsExt.h>

#include <cstdio>

namespace copus {
namespace {

constexpr int kLongest = 80;  // what is longer is cut

}  // namespace

Range::Range(const char* name) {
  nvtxRangePushA(name);
}

Range::Range(const char* name, std::int64_t number) {
  char text[kLongest];
  std::snprintf(text, sizeof text, "%s %lld", name, static_cast<long long>(number));
  nvtxRangePushA(text);
}

Range::Range(const char* group, const char* name) {
  char text[kLongest];
  std::snprintf(text, sizeof text, "%s %s", group, name);
  nvtxRangePushA(text);
}

Range::~Range() {
  nvtxRangePop();
}

}  // namespace copus
