#include <omp.h>

#include <exception>

#include "backend/cpu/parallel_for.h"

namespace copus {
namespace {

// An exception must not leave a parallel region; the first one is carried over its end.
class FirstError {
 public:
  template <class F>
  void guard(const F& body) noexcept {
    try {
      body();
    } catch (...) {
#pragma omp critical(copus_first_error)
      if (error_ == nullptr) error_ = std::current_exception();
    }
  }
  void rethrow() const {
    if (error_ != nullptr) std::rethrow_exception(error_);
  }

 private:
  std::exception_ptr error_;
};

}  // namespace

void parallel_for(int threads, std::int64_t items, LoopBody body) {
  if (threads == 1 || items <= 1) {
    for (std::int64_t i = 0; i < items; ++i) body(0, i);
    return;
  }
  FirstError error;
#pragma omp parallel num_threads(threads)
  error.guard([&] {
    int const worker = omp_get_thread_num();
    std::int64_t const workers = omp_get_num_threads();
    std::int64_t const end = items * (worker + 1) / workers;
    for (std::int64_t i = items * worker / workers; i < end; ++i) body(worker, i);
  });
  error.rethrow();
}

void parallel_for_uneven(int threads, std::int64_t items, LoopBody body) {
  if (threads == 1) {
    parallel_for(1, items, body);
    return;
  }
  FirstError error;
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
  for (std::int64_t i = 0; i < items; ++i) error.guard([&] { body(omp_get_thread_num(), i); });
  error.rethrow();
}

void use_threads(int threads) {
  omp_set_num_threads(threads);
}

}  // namespace copus
