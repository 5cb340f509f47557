// cuDNN's attention against double arithmetic. It rounds probabilities and their gradients to bf16
// before they are multiplied, which our own kernel and the table's tolerances do not.
#include <cmath>
#include <cstring>

#include "copus/backend/attention_kernel.h"
#include "copus/backend/buffer.h"
#include "gpu/gpu_support.h"
#include "support/attention_reference.h"

using namespace copus;

namespace {

using Sizes = test::AttentionSizes;

float rounded(float x) {
  return math::from_bf16(math::to_bf16(x));
}

// Values of bf16 in memory of a backend, (B, T, heads, D).
struct Half {
  std::vector<double> values;
  Buffer buffer;
  TensorView view;
  Half(Backend& backend, const Sizes& s, std::int64_t heads, std::uint64_t seed)
      : view(nullptr, DType::bf16, {s.B, s.T, heads, s.D}) {
    std::vector<std::uint16_t> bits;
    for (std::int64_t i = 0; i < view.numel(); ++i) {
      seed = seed * 6364136223846793005u + 1442695040888963407u;
      bits.push_back(math::to_bf16(static_cast<float>(seed >> 40) / 8388608.0f - 1.0f));
      values.push_back(static_cast<double>(math::from_bf16(bits.back())));
    }
    buffer = Buffer(backend, view.bytes());
    view.data = buffer.data();
    backend.upload(view, bits.data());
  }
  void fetch(Backend& backend) {
    std::vector<std::uint16_t> bits(values.size());
    backend.download(bits.data(), view);
    for (std::size_t i = 0; i < bits.size(); ++i)
      values[i] = static_cast<double>(math::from_bf16(bits[i]));
  }
};

// Each term's factor is rounded to 8 bits (2^-9 of it at most), and a group's heads before they are
// added; the result once more. What is computed in f32 on the way errs by less than another of
// these.
void compare(const char* what, const Half& got, const test::Sum& want) {
  for (std::size_t i = 0; i < want.value.size(); ++i) {
    double const tolerance = std::ldexp(3.0 * want.terms[i] + std::abs(want.value[i]), -9);
    if (std::abs(got.values[i] - want.value[i]) <= tolerance) continue;
    FAIL_CHECK(what << "[" << i << "]: " << got.values[i] << " instead of " << want.value[i]
                    << ", tolerance " << tolerance);
    return;
  }
}

}  // namespace

TEST_CASE("cuDNN's attention gives what double arithmetic gives, within its roundings", "[gpu]") {
  auto const gpu = test::gpu_or_skip();
  if (gpu == nullptr) return;
  if (std::string const problem = cudnn_problem(); !problem.empty()) {
    WARN("SKIPPED: " << problem);
    return;
  }
  for (const Sizes& s :
       std::vector<Sizes>{{2, 150, 4, 2, 64}, {1, 256, 2, 2, 128}, {1, 70, 6, 1, 32}}) {
    CAPTURE(s.B, s.T, s.H, s.K, s.D);
    Half q(*gpu, s, s.H, 1), k(*gpu, s, s.K, 2), v(*gpu, s, s.K, 3), d_out(*gpu, s, s.H, 4),
        out(*gpu, s, s.H, 5), d_q(*gpu, s, s.H, 6), d_k(*gpu, s, s.K, 7), d_v(*gpu, s, s.K, 8);
    Buffer const room(*gpu, s.B * s.H * s.T * 4);
    TensorView const lse(room.data(), DType::f32, {s.B, s.H, s.T});
    AttentionOptions options;
    options.scale = rounded(1.0f / std::sqrt(static_cast<float>(s.D)));
    // Within what the plan of a run's memory has for it, at an address that an arena may give.
    Buffer const planned(*gpu, 64 + fused_attention_bytes({s.B, s.H, s.K, s.T, s.D}));
    options.workspace = {planned.data() + 64, DType::u8, {planned.bytes() - 64}};
    gpu->attention(out.view, lse, q.view, k.view, v.view, options);
    gpu->attention_backward(d_q.view, d_k.view, d_v.view, d_out.view, q.view, k.view, v.view,
                            out.view, lse, options);
    for (Half* x : {&out, &d_q, &d_k, &d_v}) x->fetch(*gpu);
    test::AttentionReference const want =
        test::attention_reference(s, static_cast<double>(options.scale), q.values, k.values,
                                  v.values, d_out.values, out.values);
    compare("out", out, want.out);
    compare("d_q", d_q, want.d_q);
    compare("d_k", d_k, want.d_k);
    compare("d_v", d_v, want.d_v);
  }
}
