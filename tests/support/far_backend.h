// A backend whose memory the host cannot touch, to stand in for a GPU: the CPU's operations on
// memory that is mapped twice. The addresses that it gives out may be neither read nor written; the
// operations work on the other mapping. It says that it has cuDNN's attention, and leaves nothing
// of what is in the workspace that a plan has for that.
#pragma once
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

#include "copus/backend/backend.h"

namespace copus::test {

class FarBackend final : public Backend {
 public:
  explicit FarBackend(int threads = 1);
  ~FarBackend() override;
  FarBackend(const FarBackend&) = delete;
  FarBackend& operator=(const FarBackend&) = delete;

  // Where the operations reach a far address: for a test's own looks, and to spoil things.
  TensorView near(TensorView x) const {
    if (x.data != nullptr) x.data = x.ptr<std::byte>() + distance_;
    return x;
  }

  std::string name() const override { return "far"; }
  std::byte* allocate(std::int64_t bytes) override;
  void deallocate(std::byte* data, std::int64_t bytes) noexcept override;
  bool on_host() const override { return false; }
  std::unique_ptr<HostCopies> host_copies() override;
  std::int64_t free_bytes() override { return kCapacity; }
  AttentionLibrary attention_library() const override { return AttentionLibrary::cudnn; }
  // How often a workspace was there to be spoiled.
  std::int64_t spoiled() const { return spoiled_; }
  void zero(TensorView out) override { cpu_->zero(near(out)); }
  void copy(TensorView out, const TensorView& x) override { cpu_->copy(near(out), near(x)); }
  void upload(TensorView out, const void* host) override { cpu_->upload(near(out), host); }
  void download(void* host, const TensorView& x) override { cpu_->download(host, near(x)); }
  void synchronize() override { cpu_->synchronize(); }

  void matmul(TensorView out, const TensorView& a, const TensorView& b,
              const MatmulOptions& options, const TensorView& bias) override {
    cpu_->matmul(near(out), near(a), near(b), options, near(bias));
  }
  void column_sum(TensorView d_bias, const TensorView& d_out) override {
    cpu_->column_sum(near(d_bias), near(d_out));
  }
  void embedding(TensorView out, const TensorView& ids, const TensorView& table,
                 std::int64_t first_row) override {
    cpu_->embedding(near(out), near(ids), near(table), first_row);
  }
  void embedding_backward(TensorView d_table, const TensorView& ids, const TensorView& d_out,
                          std::int64_t first_row) override {
    cpu_->embedding_backward(near(d_table), near(ids), near(d_out), first_row);
  }
  void add_positions(TensorView x, const TensorView& table, std::int64_t first) override {
    cpu_->add_positions(near(x), near(table), first);
  }
  void positions_backward(TensorView d_table, const TensorView& d_x, std::int64_t first) override {
    cpu_->positions_backward(near(d_table), near(d_x), first);
  }
  void add(TensorView out, const TensorView& a, const TensorView& b) override {
    cpu_->add(near(out), near(a), near(b));
  }
  void dropout(TensorView x, const Dropout& options) override { cpu_->dropout(near(x), options); }
  void rms_norm(TensorView out, TensorView rstd, const TensorView& x, const TensorView& gain,
                float eps, const Addends& sum) override {
    cpu_->rms_norm(near(out), near(rstd), near(x), near(gain), eps, {near(sum.a), near(sum.b)});
  }
  void rms_norm_backward(TensorView d_x, TensorView d_gain, const TensorView& d_out,
                         const TensorView& x, const TensorView& gain,
                         const TensorView& rstd) override {
    cpu_->rms_norm_backward(near(d_x), near(d_gain), near(d_out), near(x), near(gain), near(rstd));
  }
  void layer_norm(TensorView out, TensorView mean, TensorView rstd, const TensorView& x,
                  const TensorView& gain, const TensorView& bias, float eps,
                  const Addends& sum) override {
    cpu_->layer_norm(near(out), near(mean), near(rstd), near(x), near(gain), near(bias), eps,
                     {near(sum.a), near(sum.b)});
  }
  void layer_norm_backward(TensorView d_x, TensorView d_gain, TensorView d_bias,
                           const TensorView& d_out, const TensorView& x, const TensorView& gain,
                           const TensorView& mean, const TensorView& rstd) override {
    cpu_->layer_norm_backward(near(d_x), near(d_gain), near(d_bias), near(d_out), near(x),
                              near(gain), near(mean), near(rstd));
  }
  void gelu(TensorView out, const TensorView& x) override { cpu_->gelu(near(out), near(x)); }
  void gelu_backward(TensorView d_x, const TensorView& d_out, const TensorView& x) override {
    cpu_->gelu_backward(near(d_x), near(d_out), near(x));
  }
  void swiglu(TensorView out, const TensorView& gate, const TensorView& up) override {
    cpu_->swiglu(near(out), near(gate), near(up));
  }
  void swiglu_backward(TensorView d_gate, TensorView d_up, const TensorView& d_out,
                       const TensorView& gate, const TensorView& up) override {
    cpu_->swiglu_backward(near(d_gate), near(d_up), near(d_out), near(gate), near(up));
  }
  void rope(TensorView x, const TensorView& table, std::int64_t first, bool inverse) override {
    cpu_->rope(near(x), near(table), first, inverse);
  }
  void attention(TensorView out, TensorView lse, const TensorView& q, const TensorView& k,
                 const TensorView& v, const AttentionOptions& options) override {
    spoil(q, k, options);
    cpu_->attention(near(out), near(lse), near(q), near(k), near(v), options);
    spoil(q, k, options);
  }
  void attention_backward(TensorView d_q, TensorView d_k, TensorView d_v, const TensorView& d_out,
                          const TensorView& q, const TensorView& k, const TensorView& v,
                          const TensorView& out, const TensorView& lse,
                          const AttentionOptions& options) override {
    spoil(q, k, options);
    cpu_->attention_backward(near(d_q), near(d_k), near(d_v), near(d_out), near(q), near(k),
                             near(v), near(out), near(lse), options);
    spoil(q, k, options);
  }
  void cross_entropy_stats(TensorView row_max, TensorView row_sum, TensorView target_logit,
                           const TensorView& logits, const TensorView& targets,
                           std::int64_t first_column, std::int64_t valid_columns) override {
    cpu_->cross_entropy_stats(near(row_max), near(row_sum), near(target_logit), near(logits),
                              near(targets), first_column, valid_columns);
  }
  void cross_entropy_rescale(TensorView row_sum, TensorView row_max,
                             const TensorView& global_max) override {
    cpu_->cross_entropy_rescale(near(row_sum), near(row_max), near(global_max));
  }
  void cross_entropy_loss(TensorView losses, const TensorView& row_max, const TensorView& row_sum,
                          const TensorView& target_logit, const TensorView& targets) override {
    cpu_->cross_entropy_loss(near(losses), near(row_max), near(row_sum), near(target_logit),
                             near(targets));
  }
  void cross_entropy_backward(TensorView d_logits, const TensorView& logits,
                              const TensorView& row_max, const TensorView& row_sum,
                              const TensorView& targets, std::int64_t first_column,
                              std::int64_t valid_columns) override {
    cpu_->cross_entropy_backward(near(d_logits), near(logits), near(row_max), near(row_sum),
                                 near(targets), first_column, valid_columns);
  }
  double sum(const TensorView& x) override { return cpu_->sum(near(x)); }
  double square_sum(const TensorView& x) override { return cpu_->square_sum(near(x)); }
  std::uint64_t hash(const TensorView& x, const HashPlace& place) override {
    return cpu_->hash(near(x), place);
  }
  void adamw(TensorView weight, TensorView m, TensorView v, const TensorView& grad,
             float grad_scale, const math::AdamScalars& scalars, const TensorView& copy) override {
    cpu_->adamw(near(weight), near(m), near(v), near(grad), grad_scale, scalars, near(copy));
  }

 private:
  void spoil(const TensorView& q, const TensorView& k, const AttentionOptions& options);

  static constexpr std::int64_t kCapacity = std::int64_t{1} << 32;  // of addresses, not memory

  std::unique_ptr<Backend> cpu_;
  int file_ = -1;
  std::byte *far_ = nullptr, *near_ = nullptr;
  std::ptrdiff_t distance_ = 0;
  std::int64_t spoiled_ = 0;
  std::mutex mutex_;
  std::map<std::int64_t, std::int64_t> held_;  // size by place
};

}  // namespace copus::test
