// A backend that runs another one's operations and keeps the time, work and traffic of each: what
// `copus bench step` shows.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "copus/backend/backend.h"

namespace copus {

// Totals of one kind of operation. Work counts every multiply and add; traffic counts each input
// read and each output written once (twice what is added to), so a rate above the memory's means
// that caches helped.
struct PartTotals {
  double seconds = 0.0;
  double flops = 0.0;  // of matrix products and attention, else 0
  double bytes = 0.0;
  std::int64_t calls = 0;
};

class TimedBackend final : public Backend {
 public:
  // Each operation is waited for, so on an asynchronous device overlap is lost while it is timed.
  explicit TimedBackend(Backend& inner) : inner_(inner) {}
  const std::map<std::string, PartTotals>& parts() const { return parts_; }
  void reset() { parts_.clear(); }
  // Paused, it only hands on: nothing is booked and nothing waited for.
  void pause() { paused_ = true; }
  void resume() { paused_ = false; }
  // Seconds so far in the calls that return only when the device has done what it was given:
  // synchronize, upload, download and the operations that give a number. Paused, too. What is left
  // of a step's time the host needs to issue its work.
  double waited_seconds() const { return waited_seconds_; }

  std::string name() const override { return inner_.name(); }
  std::byte* allocate(std::int64_t bytes) override { return inner_.allocate(bytes); }
  void deallocate(std::byte* data, std::int64_t bytes) noexcept override {
    inner_.deallocate(data, bytes);
  }
  void zero(TensorView out) override;
  void copy(TensorView out, const TensorView& x) override;
  void upload(TensorView out, const void* host) override;
  void download(void* host, const TensorView& x) override;
  void synchronize() override;
  bool on_host() const override { return inner_.on_host(); }
  std::unique_ptr<HostCopies> host_copies() override { return inner_.host_copies(); }
  std::int64_t free_bytes() override { return inner_.free_bytes(); }
  AttentionLibrary attention_library() const override { return inner_.attention_library(); }
  void matmul(TensorView out, const TensorView& a, const TensorView& b,
              const MatmulOptions& options, const TensorView& bias) override;
  void column_sum(TensorView d_bias, const TensorView& d_out) override;
  void embedding(TensorView out, const TensorView& ids, const TensorView& table,
                 std::int64_t first_row) override;
  void embedding_backward(TensorView d_table, const TensorView& ids, const TensorView& d_out,
                          std::int64_t first_row) override;
  void add_positions(TensorView x, const TensorView& table, std::int64_t first_position) override;
  void positions_backward(TensorView d_table, const TensorView& d_x,
                          std::int64_t first_position) override;
  void add(TensorView out, const TensorView& a, const TensorView& b) override;
  void dropout(TensorView x, const Dropout& options) override;
  void rms_norm(TensorView out, TensorView rstd, const TensorView& x, const TensorView& gain,
                float eps, const Addends& sum) override;
  void rms_norm_backward(TensorView d_x, TensorView d_gain, const TensorView& d_out,
                         const TensorView& x, const TensorView& gain,
                         const TensorView& rstd) override;
  void layer_norm(TensorView out, TensorView mean, TensorView rstd, const TensorView& x,
                  const TensorView& gain, const TensorView& bias, float eps,
                  const Addends& sum) override;
  void layer_norm_backward(TensorView d_x, TensorView d_gain, TensorView d_bias,
                           const TensorView& d_out, const TensorView& x, const TensorView& gain,
                           const TensorView& mean, const TensorView& rstd) override;
  void gelu(TensorView out, const TensorView& x) override;
  void gelu_backward(TensorView d_x, const TensorView& d_out, const TensorView& x) override;
  void swiglu(TensorView out, const TensorView& gate, const TensorView& up) override;
  void swiglu_backward(TensorView d_gate, TensorView d_up, const TensorView& d_out,
                       const TensorView& gate, const TensorView& up) override;
  void rope(TensorView x, const TensorView& table, std::int64_t first_position,
            bool inverse) override;
  void attention(TensorView out, TensorView lse, const TensorView& q, const TensorView& k,
                 const TensorView& v, const AttentionOptions& options) override;
  void attention_backward(TensorView d_q, TensorView d_k, TensorView d_v, const TensorView& d_out,
                          const TensorView& q, const TensorView& k, const TensorView& v,
                          const TensorView& out, const TensorView& lse,
                          const AttentionOptions& options) override;
  void cross_entropy_stats(TensorView row_max, TensorView row_sum, TensorView target_logit,
                           const TensorView& logits, const TensorView& targets,
                           std::int64_t first_column, std::int64_t valid_columns) override;
  void cross_entropy_rescale(TensorView row_sum, TensorView row_max,
                             const TensorView& global_max) override;
  void cross_entropy_loss(TensorView losses, const TensorView& row_max, const TensorView& row_sum,
                          const TensorView& target_logit, const TensorView& targets) override;
  void cross_entropy_backward(TensorView d_logits, const TensorView& logits,
                              const TensorView& row_max, const TensorView& row_sum,
                              const TensorView& targets, std::int64_t first_column,
                              std::int64_t valid_columns) override;
  double sum(const TensorView& x) override;
  double square_sum(const TensorView& x) override;
  std::uint64_t hash(const TensorView& x, const HashPlace& place) override;
  void adamw(TensorView weight, TensorView m, TensorView v, const TensorView& grad,
             float grad_scale, const math::AdamScalars& scalars, const TensorView& copy) override;

 private:
  // Runs `body`, waits for it, and books it.
  template <class Body>
  auto timed(const char* part, double flops, double bytes, Body&& body);

  // Runs `body` as one that waits.
  template <class Body>
  auto waiting(Body&& body);

  Backend& inner_;
  bool paused_ = false;
  double waited_seconds_ = 0.0;
  std::map<std::string, PartTotals> parts_;
};

}  // namespace copus
