// SEAM 1: memory and tensor operations of one rank's device. One implementation a device: cpu,
// cuda.
//
// Outputs first, sizes from the views, the element type switched once inside. Activations and
// weights are of one compute type, f32 or bf16, and so are gradients of activations; row
// statistics, logits and gradients of weights are f32, ids i32. Every element is computed with in
// f32 and rounded once where it is stored. `d_x` is the gradient of x; "adds" means it accumulates
// into the output. Every operation here has a row in
// tests/ops/op_cases.h, or a test fails. Letters: B micro-batch, T tokens, C width, H heads, K kv
// heads, D head width, F ffn width, V vocabulary (local rows), N = B T.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "copus/backend/host_copies.h"
#include "copus/core/attention_task.h"
#include "copus/core/math.h"
#include "copus/core/rng.h"
#include "copus/core/tensor.h"

namespace copus {

// out = op(a) op(b) [+ out] [+ bias], op = transpose where asked.
struct MatmulOptions {
  bool transpose_a = false, transpose_b = false;
  bool accumulate = false;
};

// Dropout by global element: element i of the view is kept when random_bits(stream, first + i) >=
// threshold(), then scaled by 1/(1-p). Four neighbours share one Philox call.
struct Dropout {
  float p = 0.0f;  // in [0, 1)
  RngStream stream;
  std::uint64_t first = 0;

  std::uint32_t threshold() const {
    return static_cast<std::uint32_t>(static_cast<double>(p) * 4294967296.0);
  }
};

struct AttentionOptions {
  float scale = 1.0f;  // 1/sqrt(D)
  Dropout
      dropout;  // element index first + ((b * global_heads + first_head + h) * T + query) * T + key
  std::int64_t first_head = 0;  // global index of local head 0
  std::int64_t global_heads = 0;
  // u8, what the library's kernels may write to beside their outputs; it holds nothing afterwards.
  // Kernels that want more are not taken. Empty: the backend's own memory, as much as they want.
  TensorView workspace = {};
};

// What a norm may add up before it: x = a + b is written first (x may be a or b).
struct Addends {
  TensorView a, b;  // of the sizes of x; both or neither
};

// Where a rectangle lies in the tensor it was cut from: its first element, and the tensor's width.
struct HashPlace {
  std::uint64_t first = 0, pitch = 0;
  std::uint64_t salt = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;

  // ---- memory -----------------------------------------------------------------------------------
  virtual std::byte* allocate(
      std::int64_t bytes) = 0;  // 64-byte aligned; throws std::bad_alloc or CudaError
  virtual void deallocate(std::byte* data, std::int64_t bytes) noexcept = 0;
  virtual void zero(TensorView out) = 0;
  virtual void copy(TensorView out,
                    const TensorView& x) = 0;  // both on the device, same sizes, any strides;
                                               // between f32 and bf16 (rows only) it rounds
  virtual void upload(TensorView out, const void* host) = 0;  // contiguous
  virtual void download(void* host,
                        const TensorView& x) = 0;  // contiguous; returns when the bytes are there
  virtual void synchronize() = 0;
  // Whether the host may read and write this memory itself.
  virtual bool on_host() const = 0;
  // For moving tensors between ranks; null where on_host(). The backend outlives it.
  virtual std::unique_ptr<HostCopies> host_copies() = 0;
  // What allocate could still give, in bytes, to all that share the device.
  virtual std::int64_t free_bytes() = 0;
  // Whose kernels may compute attention here: then a plan of its memory has their workspace.
  virtual AttentionLibrary attention_library() const { return AttentionLibrary::none; }

  // ---- matrix products
  // ---------------------------------------------------------------------------- a, b, out: 2-D,
  // rows may be strided. bias: (columns of out) or empty. Products of bf16 are summed in f32; out
  // may then be f32 too, and where it accumulates it is.
  virtual void matmul(TensorView out, const TensorView& a, const TensorView& b,
                      const MatmulOptions& options, const TensorView& bias = {}) = 0;
  virtual void column_sum(TensorView d_bias,
                          const TensorView& d_out) = 0;  // (C) adds the sum over rows of (N, C)

  // ---- embedding
  // ------------------------------------------------------------------------------------ out (N, C)
  // = table (V, C)[ids (N) - first_row]; a row outside [0, V) gives zeros (another tp rank has it).
  virtual void embedding(TensorView out, const TensorView& ids, const TensorView& table,
                         std::int64_t first_row) = 0;
  // adds, in the order of rows of d_out whatever the number of threads
  virtual void embedding_backward(TensorView d_table, const TensorView& ids,
                                  const TensorView& d_out, std::int64_t first_row) = 0;
  virtual void add_positions(TensorView x, const TensorView& table,
                             std::int64_t first_position) = 0;  // x (B, T, C) in place
  virtual void positions_backward(TensorView d_table, const TensorView& d_x,
                                  std::int64_t first_position) = 0;  // adds

  // ---- rows
  // ---------------------------------------------------------------------------------------
  virtual void add(TensorView out, const TensorView& a,
                   const TensorView& b) = 0;                       // out may be a or b
  virtual void dropout(TensorView x, const Dropout& options) = 0;  // in place; its own backward
  // out = x rstd gain, rstd (N) = 1/sqrt(mean x^2 + eps)
  virtual void rms_norm(TensorView out, TensorView rstd, const TensorView& x,
                        const TensorView& gain, float eps, const Addends& sum = {}) = 0;
  // d_x adds (the residual's gradient is already there); d_gain adds
  virtual void rms_norm_backward(TensorView d_x, TensorView d_gain, const TensorView& d_out,
                                 const TensorView& x, const TensorView& gain,
                                 const TensorView& rstd) = 0;
  virtual void layer_norm(TensorView out, TensorView mean, TensorView rstd, const TensorView& x,
                          const TensorView& gain, const TensorView& bias, float eps,
                          const Addends& sum = {}) = 0;
  virtual void layer_norm_backward(TensorView d_x, TensorView d_gain, TensorView d_bias,
                                   const TensorView& d_out, const TensorView& x,
                                   const TensorView& gain, const TensorView& mean,
                                   const TensorView& rstd) = 0;  // all three add
  virtual void gelu(TensorView out, const TensorView& x) = 0;
  virtual void gelu_backward(TensorView d_x, const TensorView& d_out,
                             const TensorView& x) = 0;  // d_x may be d_out
  // out (N, F) = silu(gate) up, gate and up (N, F) with strided rows (halves of one (N, 2F) buffer)
  virtual void swiglu(TensorView out, const TensorView& gate, const TensorView& up) = 0;
  virtual void swiglu_backward(TensorView d_gate, TensorView d_up, const TensorView& d_out,
                               const TensorView& gate, const TensorView& up) = 0;

  // ---- attention
  // ------------------------------------------------------------------------------------ x (B, T,
  // heads, D), rows strided, in place: pairs (i, i + D/2) turned by the angles of table (positions,
  // D/2, 2) = cos, sin; inverse turns back (the gradient).
  virtual void rope(TensorView x, const TensorView& table, std::int64_t first_position,
                    bool inverse) = 0;
  // Causal. q, out (B, T, H, D); k, v (B, T, K, D); H % K == 0, head h reads kv head h K / H; rows
  // strided. lse (B, H, T): log of the sum of exponentials of each query's scores.
  virtual void attention(TensorView out, TensorView lse, const TensorView& q, const TensorView& k,
                         const TensorView& v, const AttentionOptions& options) = 0;
  // overwrites d_q, d_k, d_v
  virtual void attention_backward(TensorView d_q, TensorView d_k, TensorView d_v,
                                  const TensorView& d_out, const TensorView& q, const TensorView& k,
                                  const TensorView& v, const TensorView& out, const TensorView& lse,
                                  const AttentionOptions& options) = 0;

  // ---- loss
  // ------------------------------------------------------------------------------------------- Of
  // the local columns of logits (N, V), columns from valid_columns on being padding: row_max,
  // row_sum = sum of exp(logit - row_max), target_logit (0 when the target is not among
  // [first_column, first_column + valid)). All (N) f32.
  virtual void cross_entropy_stats(TensorView row_max, TensorView row_sum, TensorView target_logit,
                                   const TensorView& logits, const TensorView& targets,
                                   std::int64_t first_column, std::int64_t valid_columns) = 0;
  // Statistics of a part of the columns on the footing of whole rows: row_sum *= exp(row_max -
  // global_max), row_max = global_max. All (N).
  virtual void cross_entropy_rescale(TensorView row_sum, TensorView row_max,
                                     const TensorView& global_max) = 0;
  // losses (N) = log row_sum + row_max - target_logit, 0 where the target is < 0 (masked)
  virtual void cross_entropy_loss(TensorView losses, const TensorView& row_max,
                                  const TensorView& row_sum, const TensorView& target_logit,
                                  const TensorView& targets) = 0;
  // d_logits of the sum of losses: softmax - onehot; masked rows and padding columns become 0. Each
  // row of d_logits, f32 or bf16, may begin where that of logits (f32) begins.
  virtual void cross_entropy_backward(TensorView d_logits, const TensorView& logits,
                                      const TensorView& row_max, const TensorView& row_sum,
                                      const TensorView& targets, std::int64_t first_column,
                                      std::int64_t valid_columns) = 0;

  // ---- sums and the optimizer
  // -----------------------------------------------------------------------------
  virtual double sum(const TensorView& x) = 0;         // fp64, fixed order
  virtual double square_sum(const TensorView& x) = 0;  // fp64, fixed order
  // Modulo 2^64, the sum over x (R, C) f32, rows strided, of math::element_hash(bits, global
  // number, salt); element (r, c) has the number first + r * pitch + c.
  virtual std::uint64_t hash(const TensorView& x, const HashPlace& place) = 0;
  // One pass over flat f32 ranges; the gradient is multiplied by grad_scale first. `copy`, f32 or
  // of the compute type and as long, gets the new weights too; or empty.
  virtual void adamw(TensorView weight, TensorView m, TensorView v, const TensorView& grad,
                     float grad_scale, const math::AdamScalars& scalars,
                     const TensorView& copy = {}) = 0;
};

// Why bf16 products are slower here than fp32 ones, in words; empty where the processor has them.
std::string cpu_bf16_problem();
// `threads` 0: all that this process may run on. The backend belongs to the thread that uses it.
// `widens_bf16`: products of bf16 are made of fp32 ones, also where the processor has its own.
std::unique_ptr<Backend> make_cpu_backend(int threads, bool widens_bf16 = false);

// Why no CUDA device can be used here, in words; empty when device 0 can.
std::string cuda_problem();
// The backend belongs to the thread that makes it. Throws CudaError where there is a problem.
std::unique_ptr<Backend> make_cuda_backend(int device);

}  // namespace copus
