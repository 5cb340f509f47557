// Loops over independent items on the backend's threads. CMake picks the OpenMP or the serial one.
#pragma once
#include <cstdint>
#include <memory>
#include <type_traits>

namespace copus {

// A reference to a callable: no allocation, valid while the callable lives.
class LoopBody {
 public:
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, LoopBody>) LoopBody(
      const F& body)  // NOLINT(google-explicit-constructor): a lambda is handed in as it is
      : target_(std::addressof(body)), call_([](const void* target, int worker, std::int64_t item) {
          (*static_cast<const F*>(target))(worker, item);
        }) {}
  void operator()(int worker, std::int64_t item) const { call_(target_, worker, item); }

 private:
  const void* target_;
  void (*call_)(const void*, int, std::int64_t);
};

// body(worker, item) for item in [0, items), worker in [0, threads). A body that throws ends the
// loop: its exception comes out here. Which worker takes which item must not matter to the result.
void parallel_for(int threads, std::int64_t items, LoopBody body);
// The same where items differ in cost: each worker takes the next one when it is free.
void parallel_for_uneven(int threads, std::int64_t items, LoopBody body);

// Makes libraries that use our thread pool run on `threads` when called from this thread: the
// setting is one of the calling thread, and ranks are threads.
void use_threads(int threads);

}  // namespace copus
