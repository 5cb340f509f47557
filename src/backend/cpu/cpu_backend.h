// The CPU backend: one class, its operations spread over the files of this folder by noun.
#pragma once
#include <memory>
#include <string>

#include "backend/cpu/gemm.h"
#include "copus/backend/backend.h"

namespace copus {

class CpuBackend final : public Backend {
 public:
  // `widens_bf16`: products of bf16 are made of fp32 ones, also where the processor has its own.
  explicit CpuBackend(int threads, bool widens_bf16 = false);
  ~CpuBackend() override;
  CpuBackend(const CpuBackend&) = delete;
  CpuBackend& operator=(const CpuBackend&) = delete;

  std::string name() const override;
  int threads() const { return threads_; }

  std::byte* allocate(std::int64_t bytes) override;
  void deallocate(std::byte* data, std::int64_t bytes) noexcept override;
  void zero(TensorView out) override;
  void copy(TensorView out, const TensorView& x) override;
  void upload(TensorView out, const void* host) override;
  void download(void* host, const TensorView& x) override;
  void synchronize() override {}
  bool on_host() const override { return true; }
  std::unique_ptr<HostCopies> host_copies() override { return nullptr; }
  std::int64_t free_bytes() override;

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
  // At least `floats` of working memory, kept between calls; valid until the next call of scratch.
  float* scratch(std::int64_t floats);
  void widened_matmul(const TensorView& out, const TensorView& a, const TensorView& b,
                      const GemmShape& shape, bool accumulate, const TensorView& bias);

  int threads_;
  bool widens_bf16_;
  Gemm gemm_;
  std::byte* scratch_ = nullptr;
  std::int64_t scratch_bytes_ = 0;
};

}  // namespace copus
