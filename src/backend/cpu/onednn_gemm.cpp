#include <fmt/core.h>

#include <array>
#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#include <string_view>

#include "backend/cpu/gemm.h"
#include "backend/cpu/parallel_for.h"
#include "backend/cpu/rows.h"
#include "copus/core/error.h"

namespace copus {
namespace {

void sgemm(const GemmShape& s, float alpha, const float* a, const float* b, float beta,
           float* out) {
  dnnl_status_t const status = dnnl_sgemm(s.transpose_a ? 'T' : 'N', s.transpose_b ? 'T' : 'N', s.m,
                                          s.n, s.k, alpha, a, s.lda, b, s.ldb, beta, out, s.ldc);
  COPUS_CHECK(status == dnnl_success, fmt::format("dnnl_sgemm of ({}, {}, {}) returned {}", s.m,
                                                  s.n, s.k, static_cast<int>(status)));
}

// A forward product, x w^T, each thread with columns of its own: then a weight is rearranged for
// the kernels by one thread alone. The library's own split took up to 11 % longer, and never less
// with two threads (docs/benchmarks/cpu-step.md); it is left to it where columns are few, and in
// backward products.
bool splits_columns(const GemmShape& s, int threads) {
  // A thread's, so that shares differ by little; of two alone fewer were measured to be enough.
  std::int64_t const least = threads == 2 ? 256 : 1024;
  return threads > 1 && !s.transpose_a && s.transpose_b && s.n >= least * threads;
}

void sgemm_by_columns(const GemmShape& s, int threads, const float* a, const float* b, float beta,
                      float* out) {
  constexpr std::int64_t kWhole = 16;  // columns: a vector
  parallel_for(threads, threads, [&](int, std::int64_t part) {
    std::int64_t const begin = s.n * part / threads / kWhole * kWhole;
    std::int64_t const end =
        part + 1 == threads ? s.n : s.n * (part + 1) / threads / kWhole * kWhole;
    GemmShape mine = s;
    mine.n = end - begin;
    Gemm::run_alone(mine, 1.0f, a, b + begin * s.ldb, beta, out + begin);
  });
}

// What tells one bf16 product's code from another's.
using Bf16Key = std::array<std::int64_t, 11>;

dnnl::memory::desc stored(std::int64_t rows, std::int64_t columns, std::int64_t ld, bool transposed,
                          dnnl::memory::data_type type) {
  return {
      {rows, columns}, type, transposed ? dnnl::memory::dims{1, ld} : dnnl::memory::dims{ld, 1}};
}

// oneDNN's first choice for bf16, its batch-reduce kernels, or its older packed product: the latter
// is up to a third faster in both backward products and a little in tall forward ones, and slower
// in short forward ones (measured on Zen 5, docs/benchmarks/cpu-step.md).
bool packed_is_faster(const GemmShape& s) {
  constexpr std::int64_t kTall = 512;
  bool const forward = !s.transpose_a && s.transpose_b;
  return !forward || s.m >= kTall;
}

dnnl::matmul::primitive_desc choose(const dnnl::matmul::desc& desc,
                                    const dnnl::primitive_attr& attributes,
                                    const dnnl::engine& engine, const GemmShape& s) {
  if (packed_is_faster(s)) {
    dnnl::matmul::primitive_desc option(desc, attributes, engine);
    do {
      if (std::string_view(option.impl_info_str()).starts_with("gemm")) return option;
    } while (option.next_impl());
  }
  return {desc, attributes, engine};
}

}  // namespace

struct Gemm::State {
  int threads;
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  // A step's products have a few dozen shapes; making the code of one takes longer than running it.
  std::map<Bf16Key, dnnl::matmul::primitive_desc> descriptions;
  std::map<Bf16Key, dnnl::matmul> products;

  explicit State(int threads_in) : threads(threads_in) {}
  const dnnl::matmul& product(const Bf16Key& key, const GemmShape& s, DType out_type, bool bias,
                              bool accumulate);
};

const dnnl::matmul& Gemm::State::product(const Bf16Key& key, const GemmShape& s, DType out_type,
                                         bool bias, bool accumulate) {
  using Type = dnnl::memory::data_type;
  auto const found = products.find(key);
  if (found != products.end()) return found->second;
  Type const type = out_type == DType::f32 ? Type::f32 : Type::bf16;
  auto const a = stored(s.m, s.k, s.lda, s.transpose_a, Type::bf16),
             b = stored(s.k, s.n, s.ldb, s.transpose_b, Type::bf16),
             out = stored(s.m, s.n, s.ldc, false, type);
  dnnl::primitive_attr attributes;
  if (accumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1.0f);
    attributes.set_post_ops(sum);
  }
  dnnl::matmul::desc const desc =
      bias ? dnnl::matmul::desc(a, b, stored(1, s.n, s.n, false, Type::bf16), out)
           : dnnl::matmul::desc(a, b, out);
  dnnl::matmul::primitive_desc const chosen = choose(desc, attributes, engine, s);
  descriptions.emplace(key, chosen);
  return products.emplace(key, dnnl::matmul(chosen)).first->second;
}

Gemm::Gemm(int threads) : state_(new State{threads}) {}
Gemm::~Gemm() = default;

void Gemm::run(const GemmShape& s, float* out, const float* a, const float* b, const float* bias,
               bool accumulate) {
  use_threads(state_->threads);
  if (bias != nullptr) {
    // The bias first, then the product on top of it.
    Rows const shape{out, s.m, s.n, s.ldc};
    for_elements(state_->threads, shape,
                 [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
                   float* const to = shape.row(row);
                   if (accumulate) {
                     for (std::int64_t i = begin; i < end; ++i) to[i] += bias[i];
                   } else {
                     std::copy(bias + begin, bias + end, to + begin);
                   }
                 });
  }
  float const beta = accumulate || bias != nullptr ? 1.0f : 0.0f;
  if (splits_columns(s, state_->threads)) {
    sgemm_by_columns(s, state_->threads, a, b, beta, out);
  } else {
    sgemm(s, 1.0f, a, b, beta, out);
  }
}

bool Gemm::has_bf16() {
  constexpr unsigned kBf16 = dnnl_cpu_isa_avx512_core_bf16;
  return (static_cast<unsigned>(dnnl_get_effective_cpu_isa()) & kBf16) == kBf16;
}

bool Gemm::offers_bf16() {
  constexpr unsigned kCore = dnnl_cpu_isa_avx512_core;
  return (static_cast<unsigned>(dnnl_get_effective_cpu_isa()) & kCore) == kCore;
}

void Gemm::run(const GemmShape& s, void* out, DType out_type, const Bf16* a, const Bf16* b,
               const Bf16* bias, bool accumulate) {
  COPUS_CHECK(out_type == DType::f32 || (out_type == DType::bf16 && !accumulate),
              "sums over products are f32");
  use_threads(state_->threads);
  Bf16Key const key{s.m,
                    s.n,
                    s.k,
                    s.lda,
                    s.ldb,
                    s.ldc,
                    s.transpose_a,
                    s.transpose_b,
                    static_cast<std::int64_t>(out_type),
                    bias != nullptr,
                    accumulate};
  try {
    const dnnl::matmul& product = state_->product(key, s, out_type, bias != nullptr, accumulate);
    const dnnl::matmul::primitive_desc& desc = state_->descriptions.at(key);
    const dnnl::engine& engine = state_->engine;
    auto const memory = [&](const dnnl::memory::desc& d, const void* data) {
      return dnnl::memory(d, engine, const_cast<void*>(data));
    };
    std::unordered_map<int, dnnl::memory> arguments{
        {DNNL_ARG_SRC, memory(desc.src_desc(), a)},
        {DNNL_ARG_WEIGHTS, memory(desc.weights_desc(), b)},
        {DNNL_ARG_DST, memory(desc.dst_desc(), out)}};
    if (bias != nullptr) arguments.emplace(DNNL_ARG_BIAS, memory(desc.bias_desc(), bias));
    product.execute(state_->stream, arguments);
    state_->stream.wait();
  } catch (const dnnl::error& e) {
    COPUS_CHECK(false,
                fmt::format("a bf16 product of ({}, {}, {}) failed: {}", s.m, s.n, s.k, e.what()));
  }
}

void Gemm::run_alone(const GemmShape& s, float alpha, const float* a, const float* b, float beta,
                     float* out) {
  use_threads(1);  // also outside of a parallel loop, whatever this thread was set to before
  sgemm(s, alpha, a, b, beta, out);
}

}  // namespace copus
