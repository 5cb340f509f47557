#include "copus/backend/timed_backend.h"

#include <chrono>
#include <initializer_list>

namespace copus {
namespace {

// Adds the time of its scope.
struct Booking {
  double& seconds;
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  ~Booking() {
    seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
};

double traffic(std::initializer_list<const TensorView*> views) {
  double bytes = 0.0;
  for (const TensorView* view : views) {
    if (*view) bytes += static_cast<double>(view->bytes());
  }
  return bytes;
}

// Causal attention visits half of the T x T pairs; each pair costs 2 D operations in each of
// `products` matrix products.
double attention_flops(const TensorView& q, double products) {
  auto const n = [&](std::size_t dim) { return static_cast<double>(q.size[dim]); };
  return products * n(0) * n(2) * n(3) * n(1) * n(1);
}

}  // namespace

template <class Body>
auto TimedBackend::timed(const char* part, double flops, double bytes, Body&& body) {
  if (paused_) return body();
  PartTotals& totals = parts_[part];
  totals.flops += flops;
  totals.bytes += bytes;
  totals.calls += 1;
  Booking const booking{totals.seconds};
  if constexpr (std::is_void_v<decltype(body())>) {
    body();
    inner_.synchronize();
  } else {
    return body();
  }
}

template <class Body>
auto TimedBackend::waiting(Body&& body) {
  Booking const booking{waited_seconds_};
  return body();
}

void TimedBackend::synchronize() {
  waiting([&] { inner_.synchronize(); });
}

void TimedBackend::zero(TensorView out) {
  timed("zero", 0, traffic({&out}), [&] { inner_.zero(out); });
}
void TimedBackend::copy(TensorView out, const TensorView& x) {
  timed("copy", 0, traffic({&out, &x}), [&] { inner_.copy(out, x); });
}
void TimedBackend::upload(TensorView out, const void* host) {
  timed("upload", 0, traffic({&out}), [&] { waiting([&] { inner_.upload(out, host); }); });
}
void TimedBackend::download(void* host, const TensorView& x) {
  timed("download", 0, traffic({&x}), [&] { waiting([&] { inner_.download(host, x); }); });
}

void TimedBackend::matmul(TensorView out, const TensorView& a, const TensorView& b,
                          const MatmulOptions& options, const TensorView& bias) {
  double const inner = static_cast<double>(a.size[options.transpose_a ? 0 : 1]);
  double const flops = 2.0 * static_cast<double>(out.numel()) * inner;
  double const again = options.accumulate ? traffic({&out}) : 0.0;
  // The three products of a linear layer, told apart by what they transpose.
  const char* part = options.transpose_b
                         ? "matmul forward"
                         : (options.transpose_a ? "matmul d_weight" : "matmul d_input");
  timed(part, flops, traffic({&out, &a, &b, &bias}) + again,
        [&] { inner_.matmul(out, a, b, options, bias); });
}
void TimedBackend::column_sum(TensorView d_bias, const TensorView& d_out) {
  timed("column_sum", 0, traffic({&d_bias, &d_bias, &d_out}),
        [&] { inner_.column_sum(d_bias, d_out); });
}

void TimedBackend::embedding(TensorView out, const TensorView& ids, const TensorView& table,
                             std::int64_t first_row) {
  timed("embedding", 0, traffic({&out, &out, &ids}),
        [&] { inner_.embedding(out, ids, table, first_row); });
}
void TimedBackend::embedding_backward(TensorView d_table, const TensorView& ids,
                                      const TensorView& d_out, std::int64_t first_row) {
  timed("embedding_backward", 0, traffic({&d_out, &d_out, &d_out, &ids}),
        [&] { inner_.embedding_backward(d_table, ids, d_out, first_row); });
}
void TimedBackend::add_positions(TensorView x, const TensorView& table,
                                 std::int64_t first_position) {
  timed("add_positions", 0, traffic({&x, &x}),
        [&] { inner_.add_positions(x, table, first_position); });
}
void TimedBackend::positions_backward(TensorView d_table, const TensorView& d_x,
                                      std::int64_t first_position) {
  timed("positions_backward", 0, traffic({&d_x}),
        [&] { inner_.positions_backward(d_table, d_x, first_position); });
}

void TimedBackend::add(TensorView out, const TensorView& a, const TensorView& b) {
  timed("add", 0, traffic({&out, &a, &b}), [&] { inner_.add(out, a, b); });
}
void TimedBackend::dropout(TensorView x, const Dropout& options) {
  timed("dropout", 0, traffic({&x, &x}), [&] { inner_.dropout(x, options); });
}
void TimedBackend::rms_norm(TensorView out, TensorView rstd, const TensorView& x,
                            const TensorView& gain, float eps, const Addends& sum) {
  timed("norm", 0, traffic({&out, &rstd, &x, &sum.a, &sum.b}),
        [&] { inner_.rms_norm(out, rstd, x, gain, eps, sum); });
}
void TimedBackend::rms_norm_backward(TensorView d_x, TensorView d_gain, const TensorView& d_out,
                                     const TensorView& x, const TensorView& gain,
                                     const TensorView& rstd) {
  timed("norm_backward", 0, traffic({&d_x, &d_x, &d_out, &x}),
        [&] { inner_.rms_norm_backward(d_x, d_gain, d_out, x, gain, rstd); });
}
void TimedBackend::layer_norm(TensorView out, TensorView mean, TensorView rstd, const TensorView& x,
                              const TensorView& gain, const TensorView& bias, float eps,
                              const Addends& sum) {
  timed("norm", 0, traffic({&out, &mean, &rstd, &x, &sum.a, &sum.b}),
        [&] { inner_.layer_norm(out, mean, rstd, x, gain, bias, eps, sum); });
}
void TimedBackend::layer_norm_backward(TensorView d_x, TensorView d_gain, TensorView d_bias,
                                       const TensorView& d_out, const TensorView& x,
                                       const TensorView& gain, const TensorView& mean,
                                       const TensorView& rstd) {
  timed("norm_backward", 0, traffic({&d_x, &d_x, &d_out, &x}),
        [&] { inner_.layer_norm_backward(d_x, d_gain, d_bias, d_out, x, gain, mean, rstd); });
}
void TimedBackend::gelu(TensorView out, const TensorView& x) {
  timed("gelu", 0, traffic({&out, &x}), [&] { inner_.gelu(out, x); });
}
void TimedBackend::gelu_backward(TensorView d_x, const TensorView& d_out, const TensorView& x) {
  timed("gelu_backward", 0, traffic({&d_x, &d_out, &x}),
        [&] { inner_.gelu_backward(d_x, d_out, x); });
}
void TimedBackend::swiglu(TensorView out, const TensorView& gate, const TensorView& up) {
  timed("swiglu", 0, traffic({&out, &gate, &up}), [&] { inner_.swiglu(out, gate, up); });
}
void TimedBackend::swiglu_backward(TensorView d_gate, TensorView d_up, const TensorView& d_out,
                                   const TensorView& gate, const TensorView& up) {
  timed("swiglu_backward", 0, traffic({&d_gate, &d_up, &d_out, &gate, &up}),
        [&] { inner_.swiglu_backward(d_gate, d_up, d_out, gate, up); });
}

void TimedBackend::rope(TensorView x, const TensorView& table, std::int64_t first_position,
                        bool inverse) {
  timed("rope", 0, traffic({&x, &x}), [&] { inner_.rope(x, table, first_position, inverse); });
}
void TimedBackend::attention(TensorView out, TensorView lse, const TensorView& q,
                             const TensorView& k, const TensorView& v,
                             const AttentionOptions& options) {
  timed("attention", attention_flops(q, 2.0), traffic({&out, &lse, &q, &k, &v}),
        [&] { inner_.attention(out, lse, q, k, v, options); });
}
void TimedBackend::attention_backward(TensorView d_q, TensorView d_k, TensorView d_v,
                                      const TensorView& d_out, const TensorView& q,
                                      const TensorView& k, const TensorView& v,
                                      const TensorView& out, const TensorView& lse,
                                      const AttentionOptions& options) {
  timed("attention_backward", attention_flops(q, 5.0),
        traffic({&d_q, &d_k, &d_v, &d_out, &q, &k, &v, &out, &lse}),
        [&] { inner_.attention_backward(d_q, d_k, d_v, d_out, q, k, v, out, lse, options); });
}

void TimedBackend::cross_entropy_stats(TensorView row_max, TensorView row_sum,
                                       TensorView target_logit, const TensorView& logits,
                                       const TensorView& targets, std::int64_t first_column,
                                       std::int64_t valid_columns) {
  timed("cross_entropy", 0, traffic({&logits, &targets, &row_max, &row_sum, &target_logit}), [&] {
    inner_.cross_entropy_stats(row_max, row_sum, target_logit, logits, targets, first_column,
                               valid_columns);
  });
}
void TimedBackend::cross_entropy_rescale(TensorView row_sum, TensorView row_max,
                                         const TensorView& global_max) {
  timed("cross_entropy", 0, traffic({&row_sum, &row_sum, &row_max, &row_max, &global_max}),
        [&] { inner_.cross_entropy_rescale(row_sum, row_max, global_max); });
}
void TimedBackend::cross_entropy_loss(TensorView losses, const TensorView& row_max,
                                      const TensorView& row_sum, const TensorView& target_logit,
                                      const TensorView& targets) {
  timed("cross_entropy", 0, traffic({&losses, &row_max, &row_sum, &target_logit, &targets}),
        [&] { inner_.cross_entropy_loss(losses, row_max, row_sum, target_logit, targets); });
}
void TimedBackend::cross_entropy_backward(TensorView d_logits, const TensorView& logits,
                                          const TensorView& row_max, const TensorView& row_sum,
                                          const TensorView& targets, std::int64_t first_column,
                                          std::int64_t valid_columns) {
  timed("cross_entropy", 0, traffic({&d_logits, &logits, &row_max, &row_sum, &targets}), [&] {
    inner_.cross_entropy_backward(d_logits, logits, row_max, row_sum, targets, first_column,
                                  valid_columns);
  });
}

double TimedBackend::sum(const TensorView& x) {
  return timed("sum", 0, traffic({&x}), [&] { return waiting([&] { return inner_.sum(x); }); });
}
double TimedBackend::square_sum(const TensorView& x) {
  return timed("square_sum", 0, traffic({&x}),
               [&] { return waiting([&] { return inner_.square_sum(x); }); });
}
std::uint64_t TimedBackend::hash(const TensorView& x, const HashPlace& place) {
  return timed("hash", 0, traffic({&x}),
               [&] { return waiting([&] { return inner_.hash(x, place); }); });
}
void TimedBackend::adamw(TensorView weight, TensorView m, TensorView v, const TensorView& grad,
                         float grad_scale, const math::AdamScalars& scalars,
                         const TensorView& copy) {
  timed("adamw", 0, 2.0 * traffic({&weight, &m, &v}) + traffic({&grad, &copy}),
        [&] { inner_.adamw(weight, m, v, grad, grad_scale, scalars, copy); });
}

}  // namespace copus
