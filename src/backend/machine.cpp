#include "copus/backend/machine.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "copus/backend/buffer.h"

namespace copus {
namespace {

// The least of `repeats` timings of `body`, after one that is not counted, in seconds.
template <class Body>
double fastest(Backend& backend, int repeats, Body&& body) {
  double best = 1e30;
  for (int i = -1; i < repeats; ++i) {
    auto const start = std::chrono::steady_clock::now();
    body();
    backend.synchronize();
    double const seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (i >= 0) best = std::min(best, seconds);
  }
  return best;
}

// Values of ordinary size: products on zeros can be faster than on data.
void fill(Backend& backend, TensorView view) {
  std::vector<float> host(static_cast<std::size_t>(view.numel()));
  for (std::size_t i = 0; i < host.size(); ++i)
    host[i] = 0.25f + 0.001f * static_cast<float>(i % 997);
  backend.upload(view, host.data());
}

}  // namespace

double measured_peak_flops(Backend& backend) {
  constexpr std::int64_t kSize = 1536;
  Arena arena(backend, 3 * Arena::aligned(kSize * kSize * size_of(DType::f32)));
  TensorView const a = arena.take(DType::f32, {kSize, kSize}),
                   b = arena.take(DType::f32, {kSize, kSize}),
                   out = arena.take(DType::f32, {kSize, kSize});
  fill(backend, a);
  fill(backend, b);
  double const seconds =
      fastest(backend, 8, [&] { backend.matmul(out, a, b, {.transpose_b = true}, {}); });
  return 2.0 * static_cast<double>(kSize * kSize * kSize) / seconds;
}

double measured_bandwidth(Backend& backend) {
  constexpr std::int64_t kElements = std::int64_t{1} << 24;
  Arena arena(backend, 3 * Arena::aligned(kElements * size_of(DType::f32)));
  TensorView const a = arena.take(DType::f32, {kElements}), b = arena.take(DType::f32, {kElements}),
                   out = arena.take(DType::f32, {kElements});
  fill(backend, a);
  fill(backend, b);
  double const seconds = fastest(backend, 5, [&] { backend.add(out, a, b); });
  return 3.0 * static_cast<double>(out.bytes()) / seconds;
}

}  // namespace copus
