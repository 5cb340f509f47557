#include "backend/op_bench.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "copus/backend/buffer.h"
#include "copus/backend/timed_backend.h"

namespace copus {
namespace {

constexpr std::int64_t B = 4, T = 256, N = B * T, C = 768, H = 12, D = 64, F = 3072, V = 50257;
constexpr std::int64_t kHeadRows = 333;  // a chunk of logits

class Bench {
 public:
  Bench(Backend& backend, int repeats) : inner_(backend), timed_(backend), repeats_(repeats) {}

  // A tensor of small varied values: products on zeros can be faster than on data.
  TensorView f32(std::initializer_list<std::int64_t> sizes) {
    TensorView const view = take(DType::f32, sizes);
    std::vector<float> host(static_cast<std::size_t>(view.numel()));
    for (std::size_t i = 0; i < host.size(); ++i) {
      host[i] = 0.25f + 0.001f * static_cast<float>(i % 997);
    }
    inner_.upload(view, host.data());
    return view;
  }
  TensorView ids(std::int64_t n) {
    TensorView const view = take(DType::i32, {n});
    std::vector<std::int32_t> host(static_cast<std::size_t>(n));
    for (std::size_t i = 0; i < host.size(); ++i) {
      host[i] = static_cast<std::int32_t>(i * 7919 % static_cast<std::size_t>(V));
    }
    inner_.upload(view, host.data());
    return view;
  }

  template <class Body>
  void measure(const std::string& name, const Body& body) {
    OpRate rate{name, 1e30, 0.0, 0.0};
    for (int i = -1; i < repeats_; ++i) {
      timed_.reset();
      body(timed_);
      for (const auto& [part, totals] : timed_.parts()) {
        if (i >= 0) rate.seconds = std::min(rate.seconds, totals.seconds);
        rate.flops = totals.flops;
        rate.bytes = totals.bytes;
      }
    }
    rates.push_back(rate);
  }

  void release() { buffers_.clear(); }

  std::vector<OpRate> rates;

 private:
  TensorView take(DType dtype, std::initializer_list<std::int64_t> sizes) {
    TensorView view(nullptr, dtype, sizes);
    buffers_.emplace_back(inner_, view.bytes());
    view.data = buffers_.back().data();
    return view;
  }

  Backend& inner_;
  TimedBackend timed_;
  int repeats_;
  std::vector<Buffer> buffers_;
};

// out = x w^T + bias, d_x = d_out w, d_w += d_out^T x
void linear(Bench& bench, const std::string& layer, std::int64_t rows, std::int64_t in,
            std::int64_t out_width, bool has_bias) {
  TensorView const x = bench.f32({rows, in}), w = bench.f32({out_width, in}),
                   out = bench.f32({rows, out_width}), bias = bench.f32({out_width});
  bench.measure("matmul " + layer, [&](Backend& backend) {
    backend.matmul(out, x, w, {.transpose_b = true}, has_bias ? bias : TensorView());
  });
  bench.measure("matmul " + layer + " d_x",
                [&](Backend& backend) { backend.matmul(x, out, w, {}, {}); });
  bench.measure("matmul " + layer + " d_w", [&](Backend& backend) {
    backend.matmul(w, out, x, {.transpose_a = true, .accumulate = true}, {});
  });
  if (has_bias) {
    bench.measure("column_sum " + layer, [&](Backend& backend) { backend.column_sum(bias, out); });
  }
  bench.release();
}

void embeddings(Bench& bench) {
  TensorView const table = bench.f32({V, C}), x = bench.f32({B, T, C}), ids = bench.ids(N);
  TensorView const rows = x.reshape({N, C}), positions = bench.f32({1024, C});
  bench.measure("embedding", [&](Backend& backend) { backend.embedding(rows, ids, table, 0); });
  bench.measure("embedding_backward",
                [&](Backend& backend) { backend.embedding_backward(table, ids, rows, 0); });
  bench.measure("add_positions", [&](Backend& backend) { backend.add_positions(x, positions, 0); });
  bench.measure("positions_backward",
                [&](Backend& backend) { backend.positions_backward(positions, x, 0); });
  bench.release();
}

void rows(Bench& bench) {
  TensorView const x = bench.f32({N, C}), y = bench.f32({N, C}), d_x = bench.f32({N, C});
  TensorView const gain = bench.f32({C}), bias = bench.f32({C}), mean = bench.f32({N}),
                   rstd = bench.f32({N}), d_gain = bench.f32({C}), d_bias = bench.f32({C});
  bench.measure("add", [&](Backend& backend) { backend.add(y, x, d_x); });
  Dropout const dropout{0.1f, stream_of({1, RngPurpose::dropout, 0, 0}), 0};
  bench.measure("dropout", [&](Backend& backend) { backend.dropout(y, dropout); });
  bench.measure("rms_norm", [&](Backend& backend) { backend.rms_norm(y, rstd, x, gain, 1e-5f); });
  bench.measure("rms_norm_backward", [&](Backend& backend) {
    backend.rms_norm_backward(d_x, d_gain, y, x, gain, rstd);
  });
  bench.measure("layer_norm",
                [&](Backend& backend) { backend.layer_norm(y, mean, rstd, x, gain, bias, 1e-5f); });
  bench.measure("layer_norm_backward", [&](Backend& backend) {
    backend.layer_norm_backward(d_x, d_gain, d_bias, y, x, gain, mean, rstd);
  });
  bench.release();
}

void activations(Bench& bench) {
  TensorView const x = bench.f32({N, F}), y = bench.f32({N, F}), d_x = bench.f32({N, F});
  bench.measure("gelu", [&](Backend& backend) { backend.gelu(y, x); });
  bench.measure("gelu_backward", [&](Backend& backend) { backend.gelu_backward(d_x, y, x); });
  TensorView const both = bench.f32({N, 2 * F}), d_both = bench.f32({N, 2 * F});
  TensorView const gate = both.slice(1, 0, F), up = both.slice(1, F, F);
  bench.measure("swiglu", [&](Backend& backend) { backend.swiglu(y, gate, up); });
  bench.measure("swiglu_backward", [&](Backend& backend) {
    backend.swiglu_backward(d_both.slice(1, 0, F), d_both.slice(1, F, F), y, gate, up);
  });
  bench.release();
}

void attention(Bench& bench, float dropout) {
  TensorView const qkv = bench.f32({B, T, 3 * H, D}), d_qkv = bench.f32({B, T, 3 * H, D});
  TensorView const out = bench.f32({B, T, H, D}), d_out = bench.f32({B, T, H, D}),
                   lse = bench.f32({B, H, T}), table = bench.f32({T, D / 2, 2});
  auto const part = [](const TensorView& x, std::int64_t i) { return x.slice(2, i * H, H); };
  AttentionOptions options;
  options.scale = 1.0f / std::sqrt(static_cast<float>(D));
  options.dropout = {dropout, stream_of({1, RngPurpose::dropout, 0, 0}), 0};
  options.global_heads = H;
  std::string const suffix = dropout > 0.0f ? " dropout" : "";
  bench.measure("attention" + suffix, [&](Backend& backend) {
    backend.attention(out, lse, part(qkv, 0), part(qkv, 1), part(qkv, 2), options);
  });
  bench.measure("attention_backward" + suffix, [&](Backend& backend) {
    backend.attention_backward(part(d_qkv, 0), part(d_qkv, 1), part(d_qkv, 2), d_out, part(qkv, 0),
                               part(qkv, 1), part(qkv, 2), out, lse, options);
  });
  if (dropout == 0.0f) {
    bench.measure("rope", [&](Backend& backend) { backend.rope(part(qkv, 0), table, 0, false); });
  }
  bench.release();
}

void loss(Bench& bench) {
  TensorView const logits = bench.f32({kHeadRows, V}), targets = bench.ids(kHeadRows);
  TensorView const most = bench.f32({kHeadRows}), sums = bench.f32({kHeadRows}),
                   at_target = bench.f32({kHeadRows}), losses = bench.f32({kHeadRows});
  bench.measure("cross_entropy_stats", [&](Backend& backend) {
    backend.cross_entropy_stats(most, sums, at_target, logits, targets, 0, V);
  });
  bench.measure("cross_entropy_rescale",
                [&](Backend& backend) { backend.cross_entropy_rescale(sums, most, most); });
  bench.measure("cross_entropy_loss", [&](Backend& backend) {
    backend.cross_entropy_loss(losses, most, sums, at_target, targets);
  });
  bench.measure("cross_entropy_backward", [&](Backend& backend) {
    backend.cross_entropy_backward(logits, logits, most, sums, targets, 0, V);
  });
  bench.release();
}

void optimizer(Bench& bench) {
  constexpr std::int64_t kElements = std::int64_t{1} << 24;
  TensorView const w = bench.f32({kElements}), m = bench.f32({kElements}),
                   v = bench.f32({kElements}), g = bench.f32({kElements});
  math::AdamScalars const s{1e-4f, 0.9f, 0.95f, 1e-8f, 0.1f, 0.1f, 0.05f};
  bench.measure("adamw", [&](Backend& backend) { backend.adamw(w, m, v, g, 1.0f, s); });
  bench.measure("sum", [&](Backend& backend) { backend.sum(g); });
  bench.measure("square_sum", [&](Backend& backend) { backend.square_sum(g); });
  bench.measure("hash", [&](Backend& backend) { backend.hash(g.reshape({1, kElements}), {}); });
  bench.measure("zero", [&](Backend& backend) { backend.zero(g); });
  bench.measure("copy", [&](Backend& backend) { backend.copy(g, w); });
  bench.release();
}

}  // namespace

std::vector<OpRate> bench_ops(Backend& backend, int repeats) {
  Bench bench(backend, repeats);
  linear(bench, "qkv", N, C, 3 * C, true);
  linear(bench, "proj", N, C, C, true);
  linear(bench, "up", N, C, F, true);
  linear(bench, "down", N, F, C, true);
  linear(bench, "head", kHeadRows, C, V, false);
  embeddings(bench);
  rows(bench);
  activations(bench);
  attention(bench, 0.0f);
  attention(bench, 0.1f);
  loss(bench);
  optimizer(bench);
  return bench.rates;
}

std::vector<OpRate> bench_attention(Backend& backend, int repeats) {
  Bench bench(backend, repeats);
  attention(bench, 0.0f);
  return bench.rates;
}

}  // namespace copus
