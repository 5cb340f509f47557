// The table of operations on the CUDA backend: the same rows, references and tolerances as the
// CPU's, in fp32 and bf16.
#include <cstring>
#include <numeric>

#include "gpu/gpu_support.h"
#include "ops/op_checks.h"

namespace copus::ops {
namespace {

std::vector<float> downloaded(Backend& backend, const TensorView& view) {
  std::vector<float> host(static_cast<std::size_t>(view.numel()));
  backend.download(host.data(), view);
  return host;
}

// Memory for one tensor of ones on a backend.
struct Ones {
  Buffer buffer;
  TensorView view;
  Ones(Backend& backend, std::initializer_list<std::int64_t> sizes)
      : view(nullptr, DType::f32, sizes) {
    buffer = Buffer(backend, view.bytes());
    view.data = buffer.data();
    fill(backend, std::vector<float>(static_cast<std::size_t>(view.numel()), 1.0f));
  }
  void fill(Backend& backend, const std::vector<float>& values) {
    backend.upload(view, values.data());
  }
};

// The factor of each element that dropout of ones leaves.
std::vector<float> dropped(Backend& backend, std::int64_t n, const Dropout& options) {
  Ones const x(backend, {n});
  backend.dropout(x.view, options);
  return downloaded(backend, x.view);
}

// Which keys attention's dropout keeps for each query, read off values that are one-hot: with
// q = 0 each key's probability stands alone in one element of the output.
std::vector<bool> attention_keeps(Backend& backend, std::int64_t T, const Dropout& dropout) {
  std::int64_t const H = 3, D = T;
  Ones q(backend, {2, T, H, D}), k(backend, {2, T, H, D}), v(backend, {2, T, H, D}),
      out(backend, {2, T, H, D}), lse(backend, {2, H, T});
  backend.zero(q.view);
  std::vector<float> one_hot(static_cast<std::size_t>(v.view.numel()));
  for (std::int64_t i = 0; i < 2 * T * H; ++i) {
    one_hot[static_cast<std::size_t>(i * D + i / H % T)] = 1.0f;
  }
  v.fill(backend, one_hot);
  AttentionOptions options;
  options.dropout = dropout;
  options.first_head = 2;
  options.global_heads = 7;
  backend.attention(out.view, lse.view, q.view, k.view, v.view, options);
  std::vector<bool> keeps;
  for (float const value : downloaded(backend, out.view)) keeps.push_back(value > 0.0f);
  return keeps;
}

}  // namespace

TEST_CASE("every operation on CUDA gives what double arithmetic gives, within its roundings",
          "[gpu]") {
  auto const backend = test::gpu_or_skip();
  if (backend != nullptr) check_values(*backend);
}

TEST_CASE("no operation on CUDA writes outside its outputs", "[gpu]") {
  auto const backend = test::gpu_or_skip();
  if (backend != nullptr) check_guards(*backend);
}

TEST_CASE("L14: a NaN in an input of a CUDA operation reaches all that depends on it", "[gpu]") {
  auto const backend = test::gpu_or_skip();
  if (backend != nullptr) check_nan(*backend);
}

TEST_CASE("an operation on CUDA gives the same bits each time", "[gpu]") {
  auto const backend = test::gpu_or_skip();
  if (backend != nullptr) check_repeats(*backend);
}

TEST_CASE("in bf16 every operation on CUDA gives what double arithmetic gives, rounded once",
          "[gpu]") {
  auto const backend = test::gpu_or_skip();
  if (backend == nullptr) return;
  check_values(*backend, bf16_op_cases());
  check_guards(*backend, bf16_op_cases());
  check_nan(*backend, bf16_op_cases());
  check_repeats(*backend, bf16_op_cases());
}

TEST_CASE("dropout on CUDA keeps what dropout on the CPU keeps, bit for bit", "[gpu]") {
  auto const gpu = test::gpu_or_skip();
  if (gpu == nullptr) return;
  auto const cpu = make_cpu_backend(2);
  for (std::uint64_t const first : {0ull, 5ull, (1ull << 33) + 2}) {
    for (float const p : {0.1f, 0.5f}) {
      Dropout const options{p, stream_of({3, RngPurpose::dropout, 9, 4}), first};
      std::vector<float> const want = dropped(*cpu, 100003, options);
      std::vector<float> const got = dropped(*gpu, 100003, options);
      CHECK(std::memcmp(want.data(), got.data(), want.size() * sizeof(float)) == 0);
      CAPTURE(first, p);
      CHECK(attention_keeps(*cpu, 70, options) == attention_keeps(*gpu, 70, options));
    }
  }
}

TEST_CASE("copies and zeros on CUDA respect strides of any dimension", "[gpu]") {
  auto const gpu = test::gpu_or_skip();
  if (gpu == nullptr) return;
  Ones from(*gpu, {3, 4, 5, 6}), to(*gpu, {3, 4, 5, 6});
  std::vector<float> values(360);
  std::iota(values.begin(), values.end(), 0.0f);
  from.fill(*gpu, values);
  TensorView const source = from.view.slice(1, 1, 2).slice(2, 2, 3).slice(3, 1, 4);
  TensorView const target = to.view.slice(1, 2, 2).slice(2, 0, 3).slice(3, 2, 4);
  gpu->copy(target, source);
  gpu->zero(to.view.slice(1, 0, 1).slice(3, 5, 1));
  std::vector<float> const got = downloaded(*gpu, to.view);
  for (std::int64_t i = 0; i < 360; ++i) {
    std::int64_t const d = i % 6, c = i / 6 % 5, b = i / 30 % 4, a = i / 120;
    float want = 1.0f;
    if (b >= 2 && c < 3 && d >= 2) {
      want = static_cast<float>(((a * 4 + b - 1) * 5 + c + 2) * 6 + d - 1);
    }
    if (b == 0 && d == 5) want = 0.0f;
    CAPTURE(a, b, c, d);
    CHECK(got[static_cast<std::size_t>(i)] == want);
  }
}

}  // namespace copus::ops
