// Promises about numbers that one row of the op table cannot state.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <thread>
#include <vector>

#include "backend/cpu/gemm.h"
#include "copus/backend/backend.h"
#include "copus/core/error.h"

namespace copus {
namespace {

TensorView flat(std::vector<float>& x) {
  return TensorView(x.data(), DType::f32, {static_cast<std::int64_t>(x.size())});
}

float draw(std::uint32_t place, std::uint64_t index) {
  return static_cast<float>(
      random_bits(stream_of({1, RngPurpose::test, 0, place}), index) / 4294967296.0 - 0.5);
}

}  // namespace

TEST_CASE("E19: a weight of exactly 1 moves under a learning rate of 6e-4") {
  auto const backend = make_cpu_backend(2);
  std::vector<float> weight(768, 1.0f), m(768), v(768), grad(768, 1e-3f);
  // At the first step the corrections undo the betas: the step is lr times the gradient's sign.
  math::AdamScalars const s{6e-4f, 0.9f, 0.95f, 1e-8f, 0.0f, 1.0f - 0.9f, 1.0f - 0.95f};
  backend->adamw(flat(weight), flat(m), flat(v), flat(grad), 1.0f, s);
  // One weight of fp32 near 1 is exact to eps / 2; the step itself to a few eps of 6e-4.
  double const eps = std::numeric_limits<float>::epsilon();
  for (float const w : weight) CHECK(std::abs(static_cast<double>(w) - (1.0 - 6e-4)) <= eps);
}

TEST_CASE("E18: the sum of 512 micro-gradients stays within fp32 rounding of fp64") {
  auto const backend = make_cpu_backend(2);
  constexpr std::size_t n = 1000;
  constexpr std::uint32_t kMicro = 512;
  std::vector<float> sum(n), grad(n);
  std::vector<double> exact(n), size(n);
  for (std::uint32_t micro = 0; micro < kMicro; ++micro) {
    for (std::size_t i = 0; i < n; ++i) {
      grad[i] = draw(micro, i);
      exact[i] += static_cast<double>(grad[i]);
      size[i] = std::max(size[i], std::abs(exact[i]));
    }
    backend->add(flat(sum), flat(sum), flat(grad));
  }
  // Each of the 512 additions errs by half an eps of the partial sum, with either sign: eps / 2 *
  // size * sqrt(512); six times that is beyond chance.
  double const unit = 0.5 * std::numeric_limits<float>::epsilon() * std::sqrt(512.0);
  for (std::size_t i = 0; i < n; ++i) {
    CHECK(std::abs(static_cast<double>(sum[i]) - exact[i]) <= 6.0 * unit * size[i]);
  }
}

TEST_CASE("the sum of a million squares is a double's, not a float's") {
  auto const backend = make_cpu_backend(2);
  std::vector<float> x(1000003);
  long double exact = 0.0L;
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = draw(9, i);
    exact += static_cast<long double>(x[i]) * static_cast<long double>(x[i]);
  }
  // All terms are positive: n additions err by at most n eps / 2 of the sum.
  double const bound = 0.5 * 1000003 * std::numeric_limits<double>::epsilon();
  CHECK(std::abs(backend->square_sum(flat(x)) / static_cast<double>(exact) - 1.0) <= bound);
  x.assign(x.size(), 0.1f);
  double const want = static_cast<double>(0.1f) * 1000003;
  CHECK(std::abs(backend->sum(flat(x)) / want - 1.0) <= bound);
}

TEST_CASE("dropout keeps the same elements when the tensor is cut in two") {
  auto const backend = make_cpu_backend(2);
  std::vector<float> whole(5003, 1.0f), parts(5003, 1.0f);
  Dropout options{0.25f, stream_of({3, RngPurpose::dropout, 8, 4}), 17};
  backend->dropout(flat(whole), options);
  backend->dropout(flat(parts).slice(0, 0, 1234), options);
  options.first += 1234;
  backend->dropout(flat(parts).slice(0, 1234, 5003 - 1234), options);
  CHECK(whole == parts);
  double kept = 0.0;
  for (float const x : whole) kept += x != 0.0f ? 1.0 : 0.0;
  // A binomial count: five standard deviations, sqrt(n p (1-p)).
  CHECK(std::abs(kept - 0.75 * 5003) <= 5.0 * std::sqrt(5003 * 0.25 * 0.75));
}

TEST_CASE("a dropout probability of 1 or more is refused") {
  auto const backend = make_cpu_backend(1);
  std::vector<float> x(4, 1.0f);
  CHECK_THROWS_AS(backend->dropout(flat(x), {1.0f, {}, 0}), InternalError);
}

TEST_CASE("a logit of -inf gets probability 0, and its gradient is 0") {
  auto const backend = make_cpu_backend(1);
  std::vector<float> logits{0.0f, -std::numeric_limits<float>::infinity(), 0.0f};
  std::vector<float> most(1), sum(1), at_target(1), loss(1);
  std::vector<std::int32_t> target{2};
  TensorView const x(logits.data(), DType::f32, {1, 3}), t(target.data(), DType::i32, {1});
  backend->cross_entropy_stats(flat(most), flat(sum), flat(at_target), x, t, 0, 3);
  backend->cross_entropy_loss(flat(loss), flat(most), flat(sum), flat(at_target), t);
  backend->cross_entropy_backward(x, x, flat(most), flat(sum), t, 0, 3);
  CHECK(sum[0] == 2.0f);
  CHECK(loss[0] == std::log(2.0f));
  CHECK(logits == std::vector<float>{0.5f, 0.0f, -0.5f});
}

TEST_CASE("shapes that do not fit are refused before anything is written") {
  auto const backend = make_cpu_backend(1);
  std::vector<float> a(6, 1.0f), b(6, 1.0f), out(4, 7.0f);
  TensorView const x(a.data(), DType::f32, {2, 3}), y(b.data(), DType::f32, {2, 3});
  TensorView const z(out.data(), DType::f32, {2, 2});
  CHECK_THROWS_AS(backend->matmul(z, x, y, {}), InternalError);
  CHECK_THROWS_AS(backend->add(z, x, y), InternalError);
  CHECK(out == std::vector<float>(4, 7.0f));
}

TEST_CASE("ranks as threads get the same bits from backends of their own") {
  auto const body = [](std::vector<float>& out, double& norm) {
    auto const backend = make_cpu_backend(2);
    std::vector<float> x(64 * 96), gain(96, 1.0f), rstd(64);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = draw(4, i);
    out.resize(x.size());
    backend->rms_norm(TensorView(out.data(), DType::f32, {64, 96}), flat(rstd),
                      TensorView(x.data(), DType::f32, {64, 96}), flat(gain), 1e-5f);
    norm = backend->square_sum(flat(out));
  };
  std::vector<std::vector<float>> outs(3);
  std::vector<double> norms(3);
  std::vector<std::thread> ranks;
  for (std::size_t r = 0; r < 3; ++r) {
    ranks.emplace_back([&, r] { body(outs[r], norms[r]); });
  }
  for (std::thread& rank : ranks) rank.join();
  CHECK(outs[0] == outs[1]);
  CHECK(outs[1] == outs[2]);
  CHECK(norms[0] == norms[1]);
  CHECK(norms[1] == norms[2]);
}

TEST_CASE("a copy to bf16 rounds to the nearest, and back it changes nothing") {
  auto const backend = make_cpu_backend(2);
  std::vector<float> x(40000), back(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = draw(1, i) * 1e3f;
  x[7] = std::numeric_limits<float>::infinity();
  std::vector<std::uint16_t> half(x.size());
  auto const n = static_cast<std::int64_t>(x.size());
  backend->copy({half.data(), DType::bf16, {n}}, flat(x));
  backend->copy(flat(back), {half.data(), DType::bf16, {n}});
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    wrong += half[i] != math::to_bf16(x[i]) || back[i] != math::from_bf16(half[i]) ? 1 : 0;
  }
  CHECK(wrong == 0);
}

TEST_CASE("a bf16 gradient over its logits is the same as one beside them") {
  auto const backend = make_cpu_backend(2);
  constexpr std::int64_t kRows = 3, kColumns = 5003, kValid = 4999;  // rows of several stretches
  std::vector<float> logits(kRows * kColumns), most(kRows, 0.5f), sum(kRows, 6000.0f);
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = draw(2, i);
  std::vector<std::int32_t> targets{4998, -1, 17};
  std::vector<std::uint16_t> apart(logits.size());
  TensorView const x(logits.data(), DType::f32, {kRows, kColumns}),
      t(targets.data(), DType::i32, {kRows});
  backend->cross_entropy_backward({apart.data(), DType::bf16, {kRows, kColumns}}, x, flat(most),
                                  flat(sum), t, 0, kValid);
  TensorView over(logits.data(), DType::bf16, {kRows, kColumns});
  over.stride[0] = 2 * kColumns;
  backend->cross_entropy_backward(over, x, flat(most), flat(sum), t, 0, kValid);
  std::vector<std::uint16_t> packed(logits.size());
  backend->copy({packed.data(), DType::bf16, {kRows, kColumns}}, over);
  CHECK(packed == apart);
}

// Where the processor has bf16 products they are the library's; elsewhere it emulates them, slowly,
// and this is the only look at the way that such processors take.
TEST_CASE("the library's bf16 products are sums of exact products, rounded once") {
  if (!Gemm::offers_bf16()) {
    WARN("skipped: the library has no bf16 products here");
    return;
  }
  Gemm gemm(2);
  constexpr std::int64_t m = 37, n = 50, k = 65, ld = 70;
  std::vector<Bf16> a(k * ld), b(k * ld), bias(n), rounded(m * ld);
  for (std::size_t i = 0; i < a.size(); ++i) a[i].bits = math::to_bf16(draw(3, i));
  for (std::size_t i = 0; i < b.size(); ++i) b[i].bits = math::to_bf16(draw(4, i));
  for (std::size_t i = 0; i < bias.size(); ++i) bias[i].bits = math::to_bf16(draw(5, i));
  for (int const which : {0, 1, 2, 3}) {
    bool const a_t = which % 2 == 1, b_t = which / 2 == 1;
    std::vector<float> sums(m * ld, 1.0f);
    GemmShape const shape{a_t, b_t, m, n, k, ld, ld, ld};
    gemm.run(shape, rounded.data(), DType::bf16, a.data(), b.data(), bias.data(), false);
    gemm.run(shape, sums.data(), DType::f32, a.data(), b.data(), nullptr, true);
    double worst = 0.0, worst_rounded = 0.0;
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t j = 0; j < n; ++j) {
        double exact = 0.0;
        for (std::int64_t l = 0; l < k; ++l) {
          auto const at = [](std::int64_t index) { return static_cast<std::size_t>(index); };
          exact += static_cast<double>(math::from_bf16(a[at(a_t ? l * ld + i : i * ld + l)].bits)) *
                   static_cast<double>(math::from_bf16(b[at(b_t ? j * ld + l : l * ld + j)].bits));
        }
        auto const out = static_cast<std::size_t>(i * ld + j);
        double const with_bias =
            exact + static_cast<double>(math::from_bf16(bias[static_cast<std::size_t>(j)].bits));
        worst = std::max(worst, std::abs(static_cast<double>(sums[out]) - 1.0 - exact));
        worst_rounded =
            std::max(worst_rounded,
                     std::abs(static_cast<double>(math::from_bf16(rounded[out].bits)) - with_bias) -
                         std::ldexp(std::abs(with_bias), -8));
      }
    }
    // Each of k additions rounds a partial sum below k / 4.
    double const bound = 0.5 * std::numeric_limits<float>::epsilon() * k * k / 4.0;
    CHECK(worst <= bound);
    CHECK(worst_rounded <= 2.0 * bound);
  }
}

}  // namespace copus
