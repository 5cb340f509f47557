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

// Values of ordinary size: products on zeros can be faster than on data. In short stretches: what a
// matrix would take on the host, malloc might keep for the rest of the run.
void fill(Backend& backend, TensorView view) {
  constexpr std::int64_t kPeriod = 997, kStretch = 16 * kPeriod;
  std::vector<float> host(static_cast<std::size_t>(kStretch));
  for (std::size_t i = 0; i < host.size(); ++i)
    host[i] = 0.25f + 0.001f * static_cast<float>(i % kPeriod);
  TensorView const flat = view.reshape({view.numel()});
  for (std::int64_t at = 0; at < flat.numel(); at += kStretch)
    backend.upload(flat.slice(0, at, std::min(kStretch, flat.numel() - at)), host.data());
}

// Seconds of a product of two matrices of `size` x `size`.
double product_seconds(Backend& backend, std::int64_t size, DType type) {
  Arena arena(backend, Arena::aligned(size * size * size_of(DType::f32)) +
                           3 * Arena::aligned(size * size * size_of(type)));
  TensorView const values = arena.take(DType::f32, {size, size}),
                   a = arena.take(type, {size, size}), b = arena.take(type, {size, size}),
                   out = arena.take(type, {size, size});
  fill(backend, values);
  backend.copy(a, values);
  backend.copy(b, values);
  return fastest(backend, 8, [&] { backend.matmul(out, a, b, {.transpose_b = true}, {}); });
}

}  // namespace

double measured_peak_flops(Backend& backend, DType type) {
  constexpr double kLongEnough = 4e-3;  // starting and waiting cost microseconds
  constexpr std::int64_t kLargest = 12288;
  double best = 0.0;
  for (std::int64_t size = 1536; size <= kLargest; size *= 2) {
    double const seconds = product_seconds(backend, size, type);
    best = std::max(best, 2.0 * static_cast<double>(size * size * size) / seconds);
    if (seconds >= kLongEnough) break;
  }
  return best;
}

double measured_bandwidth(Backend& backend) {
  constexpr std::int64_t kElements = std::int64_t{1} << 24;
  constexpr int kSums = 8;  // between two waits: one alone takes a GPU as long as the wait
  Arena arena(backend, 3 * Arena::aligned(kElements * size_of(DType::f32)));
  TensorView const a = arena.take(DType::f32, {kElements}), b = arena.take(DType::f32, {kElements}),
                   out = arena.take(DType::f32, {kElements});
  fill(backend, a);
  fill(backend, b);
  double const seconds = fastest(backend, 5, [&] {
    for (int i = 0; i < kSums; ++i) backend.add(out, a, b);
  });
  return 3.0 * kSums * static_cast<double>(out.bytes()) / seconds;
}

double measured_launch_seconds(Backend& backend) {
  constexpr std::int64_t kSize = 16;  // 8 kFLOP: tens of nanoseconds
  constexpr int kProducts = 64;       // between two waits, as above
  Arena arena(backend, 3 * Arena::aligned(kSize * kSize * size_of(DType::f32)));
  TensorView const a = arena.take(DType::f32, {kSize, kSize}),
                   b = arena.take(DType::f32, {kSize, kSize}),
                   out = arena.take(DType::f32, {kSize, kSize});
  fill(backend, a);
  fill(backend, b);
  double const seconds = fastest(backend, 8, [&] {
    for (int i = 0; i < kProducts; ++i) backend.matmul(out, a, b, {.transpose_b = true}, {});
  });
  return seconds / kProducts;
}

}  // namespace copus
