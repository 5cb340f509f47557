#include "backend/cpu/parallel_for.h"

namespace copus {

void parallel_for(int, std::int64_t items, LoopBody body) {
  for (std::int64_t i = 0; i < items; ++i) body(0, i);
}

void parallel_for_uneven(int threads, std::int64_t items, LoopBody body) {
  parallel_for(threads, items, body);
}

void use_threads(int) {}

}  // namespace copus
