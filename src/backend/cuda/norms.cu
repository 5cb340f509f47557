#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"

namespace copus {
namespace cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kRowsABlock = kThreads / kWarp;

// RMSNorm is LayerNorm without the mean and the bias: kCentred tells them apart.
template <class T>
struct NormForward {
  RowsOf<T> out, x;
  float* mean;  // (N)
  float* rstd;  // (N)
  const T* gain;
  const T* bias;
  float eps;
  RowsOf<T> first = {}, second = {};  // x becomes their sum, where kAdds
};

// x = first + second at a place of a row, rounded where it is stored, and given back as stored.
template <class T, int kWidth>
__device__ Pack<kWidth> add_up(T* x, const T* first, const T* second) {
  Pack<kWidth> sum = load<kWidth>(first);
  Pack<kWidth> const other = load<kWidth>(second);
#pragma unroll
  for (int w = 0; w < kWidth; ++w) sum.at[w] += other.at[w];
  store<kWidth>(x, sum);
  return load<kWidth>(x);
}

// A warp takes a row; the passes after the first find it in the nearest cache, each thread what it
// has read or written itself.
template <class T, bool kCentred, bool kAdds, int kWidth>
__global__ void __launch_bounds__(kThreads) norm_kernel(NormForward<T> a) {
  int const lane = static_cast<int>(threadIdx.x) % kWarp;
  std::int64_t const row =
      std::int64_t{blockIdx.x} * kRowsABlock + static_cast<int>(threadIdx.x) / kWarp;
  if (row >= a.x.rows) return;
  T* const x = a.x.data + row * a.x.stride;
  T* const y = a.out.data + row * a.out.stride;
  // Of the pass that comes first: it sees x being made.
  auto const element = [&](int c) {
    if constexpr (kAdds) {
      return add_up<T, kWidth>(x + c, a.first.data + row * a.first.stride + c,
                               a.second.data + row * a.second.stride + c);
    } else {
      return load<kWidth>(x + c);
    }
  };
  int const C = static_cast<int>(a.x.width);
  auto const width = static_cast<float>(C);
  float mean = 0.0f;
  if constexpr (kCentred) {
    float total = 0.0f;
    for (int c = lane * kWidth; c < C; c += kWarp * kWidth) {
      Pack<kWidth> const v = element(c);
#pragma unroll
      for (int w = 0; w < kWidth; ++w) total += v.at[w];
    }
    mean = warp_sum(total) / width;
  }
  float squares = 0.0f;
  for (int c = lane * kWidth; c < C; c += kWarp * kWidth) {
    Pack<kWidth> const v = kCentred ? load<kWidth>(x + c) : element(c);
#pragma unroll
    for (int w = 0; w < kWidth; ++w) squares = fmaf(v.at[w] - mean, v.at[w] - mean, squares);
  }
  float const s = 1.0f / sqrtf(warp_sum(squares) / width + a.eps);
  if (lane == 0) {
    if constexpr (kCentred) a.mean[row] = mean;
    a.rstd[row] = s;
  }
  for (int c = lane * kWidth; c < C; c += kWarp * kWidth) {
    Pack<kWidth> v = load<kWidth>(x + c);
    Pack<kWidth> const g = load<kWidth>(a.gain + c);
    Pack<kWidth> shift{};
    if constexpr (kCentred) shift = load<kWidth>(a.bias + c);
#pragma unroll
    for (int w = 0; w < kWidth; ++w) {
      v.at[w] = kCentred ? fmaf((v.at[w] - mean) * s, g.at[w], shift.at[w]) : v.at[w] * s * g.at[w];
    }
    store<kWidth>(y + c, v);
  }
}

template <class T>
struct NormBackward {
  RowsOf<T> d_x, d_out, x;
  const T* gain;
  const float* mean;
  const float* rstd;
  float* partials;  // (blocks, kinds, C): sums over a block's rows, for d_gain and d_bias
  std::int64_t rows_a_block;
};

// With n = (x - mean) rstd and e = gain d_out: d_x += rstd (e - mean(e) - n mean(e n)),
// d_gain += sum over rows d_out n, d_bias += sum over rows d_out. RMSNorm has no mean(e).
// A block takes rows one after another, each thread always the same columns, so that the column
// sums need no exchange: they lie in shared memory, each column one thread's.
template <class T, bool kCentred, int kWidth>
__global__ void __launch_bounds__(kThreads, kBlocksAtOnce) norm_backward_kernel(NormBackward<T> a) {
  extern __shared__ float4 shared[];  // aligned for the widest access
  auto* const sums = reinterpret_cast<float*>(shared);
  __shared__ float warps[2][kThreads / kWarp];
  int const C = static_cast<int>(a.x.width), begin = static_cast<int>(threadIdx.x) * kWidth;
  constexpr int kStep = kThreads * kWidth, kKinds = kCentred ? 2 : 1;
  auto const width = static_cast<float>(C);
  for (int c = begin; c < C; c += kStep) {
    for (int k = 0; k < kKinds; ++k) store<kWidth>(sums + k * C + c, Pack<kWidth>{});
  }
  std::int64_t const first = blockIdx.x * a.rows_a_block;
  std::int64_t const last = first + a.rows_a_block < a.x.rows ? first + a.rows_a_block : a.x.rows;
  for (std::int64_t row = first; row < last; ++row) {
    const T* const x = a.x.data + row * a.x.stride;
    const T* const d_out = a.d_out.data + row * a.d_out.stride;
    T* const d_x = a.d_x.data + row * a.d_x.stride;
    float const m = kCentred ? a.mean[row] : 0.0f, s = a.rstd[row];
    float total = 0.0f, dot = 0.0f;
    for (int c = begin; c < C; c += kStep) {
      Pack<kWidth> const v = load<kWidth>(x + c), dy = load<kWidth>(d_out + c),
                         g = load<kWidth>(a.gain + c);
      Pack<kWidth> d_gain = load<kWidth>(sums + c), d_bias{};
      if constexpr (kCentred) d_bias = load<kWidth>(sums + C + c);
#pragma unroll
      for (int w = 0; w < kWidth; ++w) {
        float const along = dy.at[w] * ((v.at[w] - m) * s);
        d_gain.at[w] += along;
        d_bias.at[w] += dy.at[w];
        total = fmaf(dy.at[w], g.at[w], total);
        dot = fmaf(along, g.at[w], dot);
      }
      store<kWidth>(sums + c, d_gain);
      if constexpr (kCentred) store<kWidth>(sums + C + c, d_bias);
    }
    float const mean_en = block_sum(dot, warps[0]) / width;
    float mean_e = 0.0f;
    if constexpr (kCentred) mean_e = block_sum(total, warps[1]) / width;
    for (int c = begin; c < C; c += kStep) {
      Pack<kWidth> const v = load<kWidth>(x + c), dy = load<kWidth>(d_out + c),
                         g = load<kWidth>(a.gain + c);
      Pack<kWidth> to = load<kWidth>(d_x + c);
#pragma unroll
      for (int w = 0; w < kWidth; ++w) {
        float const n = (v.at[w] - m) * s;
        to.at[w] = fmaf(s, fmaf(-n, mean_en, fmaf(dy.at[w], g.at[w], -mean_e)), to.at[w]);
      }
      store<kWidth>(d_x + c, to);
    }
  }
  float* const partials = a.partials + std::int64_t{blockIdx.x} * kKinds * C;
  for (int c = begin; c < C; c += kStep) {
    for (int k = 0; k < kKinds; ++k) {
      store<kWidth>(partials + k * C + c, load<kWidth>(sums + k * C + c));
    }
  }
}

float* statistics_of(const TensorView& x, std::int64_t rows) {
  COPUS_CHECK(x.dtype == DType::f32 && x.contiguous() && x.numel() == rows, "one value a row");
  return x.ptr<float>();
}

template <class T>
T* columns_of(const TensorView& x, std::int64_t width) {
  COPUS_CHECK(x.dtype == kDTypeOf<T> && x.contiguous() && x.numel() == width, "one value a column");
  return x.ptr<T>();
}

constexpr std::int64_t kWidest = 1 << 24;  // columns are counted in int

template <class T, bool kCentred>
void launch_forward(cudaStream_t stream, const NormForward<T>& a) {
  COPUS_CHECK(a.out.rows == a.x.rows && a.out.width == a.x.width, "out has the sizes of x");
  COPUS_CHECK(a.x.width <= kWidest, "a row of a norm");
  if (a.x.rows == 0 || a.x.width == 0) return;
  bool const adds = a.first.data != nullptr;
  bool const fours = in_fours(a.out) && in_fours(a.x) && aligned16(a.gain) && aligned16(a.bias) &&
                     (!adds || (in_fours(a.first) && in_fours(a.second)));
  auto* const kernel =
      adds ? (fours ? norm_kernel<T, kCentred, true, 4> : norm_kernel<T, kCentred, true, 1>)
           : (fours ? norm_kernel<T, kCentred, false, 4> : norm_kernel<T, kCentred, false, 1>);
  auto const blocks = static_cast<unsigned>(pieces(a.x.rows, kRowsABlock));
  kernel<<<blocks, kThreads, 0, stream>>>(a);
  CUDA_CHECK(cudaGetLastError());
}

// How the rows are cut: by their number alone, so that the order of the sums is the same on every
// GPU; enough blocks to fill any.
constexpr std::int64_t kMostBlocks = 528;
std::int64_t rows_a_block(std::int64_t rows) {
  return pieces(rows, kMostBlocks);
}

template <class T, bool kCentred>
void launch_backward(cudaStream_t stream, const NormBackward<T>& a, float* d_gain, float* d_bias) {
  std::int64_t const C = a.x.width, kinds = kCentred ? 2 : 1;
  std::int64_t const blocks = pieces(a.x.rows, a.rows_a_block), shared = kinds * C * 4;
  // Partials start at a multiple of C floats.
  bool const fours = in_fours(a.d_x) && in_fours(a.d_out) && in_fours(a.x) && aligned16(a.gain);
  auto* const kernel =
      fours ? norm_backward_kernel<T, kCentred, 4> : norm_backward_kernel<T, kCentred, 1>;
  allow_shared(kernel, shared);
  kernel<<<static_cast<unsigned>(blocks), kThreads, static_cast<std::size_t>(shared), stream>>>(a);
  CUDA_CHECK(cudaGetLastError());
  fold_columns(stream, d_gain, {a.partials, blocks, kinds * C, C});
  if constexpr (kCentred) fold_columns(stream, d_bias, {a.partials + C, blocks, kinds * C, C});
}

// The tensors of a norm's two directions; mean and bias are empty in RMSNorm.
struct NormOperands {
  TensorView x, gain, bias, mean, rstd;
};

template <class T, bool kCentred>
void forward(cudaStream_t stream, const TensorView& out, const NormOperands& o, float eps,
             const Addends& sum) {
  RowsOf<T> const x = rows_of<T>(o.x);
  NormForward<T> a{
      rows_of<T>(out), x,  nullptr, statistics_of(o.rstd, x.rows), columns_of<T>(o.gain, x.width),
      nullptr,         eps};
  if constexpr (kCentred) {
    a.mean = statistics_of(o.mean, x.rows);
    a.bias = columns_of<T>(o.bias, x.width);
  }
  if (sum.a) {
    a.first = rows_of<T>(sum.a);
    a.second = rows_of<T>(sum.b);
    COPUS_CHECK(a.first.rows == x.rows && a.first.width == x.width && a.second.rows == x.rows &&
                    a.second.width == x.width,
                "addends have the sizes of x");
  }
  launch_forward<T, kCentred>(stream, a);
}

struct NormGradients {
  TensorView d_x, d_gain, d_bias;
};

// `partials_of(bytes)`: device memory.
template <class T, bool kCentred, class Scratch>
void backward(cudaStream_t stream, const NormGradients& d, const TensorView& d_out,
              const NormOperands& o, const Scratch& partials_of) {
  RowsOf<T> const d_x = rows_of<T>(d.d_x), from = rows_of<T>(d_out), x = rows_of<T>(o.x);
  COPUS_CHECK(
      d_x.rows == x.rows && d_x.width == x.width && from.rows == x.rows && from.width == x.width,
      "gradients have the sizes of x");
  COPUS_CHECK(x.width <= kWidest, "a row of a norm");
  float* const gain_sums = columns_of<float>(d.d_gain, x.width);
  float* const bias_sums = kCentred ? columns_of<float>(d.d_bias, x.width) : nullptr;
  const float* const means = kCentred ? statistics_of(o.mean, x.rows) : nullptr;
  NormBackward<T> a{d_x,     from,
                    x,       columns_of<T>(o.gain, x.width),
                    means,   statistics_of(o.rstd, x.rows),
                    nullptr, rows_a_block(x.rows)};
  if (x.rows == 0 || x.width == 0) return;
  std::int64_t const kinds = kCentred ? 2 : 1;
  a.partials =
      reinterpret_cast<float*>(partials_of(pieces(x.rows, a.rows_a_block) * kinds * x.width * 4));
  launch_backward<T, kCentred>(stream, a, gain_sums, bias_sums);
}

}  // namespace
}  // namespace cuda

void CudaBackend::rms_norm(TensorView out, TensorView rstd, const TensorView& x,
                           const TensorView& gain, float eps, const Addends& sum) {
  with_compute_type(x.dtype, [&](auto type) {
    cuda::forward<decltype(type), false>(stream(), out, {x, gain, {}, {}, rstd}, eps, sum);
  });
}

void CudaBackend::layer_norm(TensorView out, TensorView mean, TensorView rstd, const TensorView& x,
                             const TensorView& gain, const TensorView& bias, float eps,
                             const Addends& sum) {
  with_compute_type(x.dtype, [&](auto type) {
    cuda::forward<decltype(type), true>(stream(), out, {x, gain, bias, mean, rstd}, eps, sum);
  });
}

void CudaBackend::rms_norm_backward(TensorView d_x, TensorView d_gain, const TensorView& d_out,
                                    const TensorView& x, const TensorView& gain,
                                    const TensorView& rstd) {
  with_compute_type(x.dtype, [&](auto type) {
    cuda::backward<decltype(type), false>(stream(), {d_x, d_gain, {}}, d_out,
                                          {x, gain, {}, {}, rstd},
                                          [&](std::int64_t bytes) { return scratch(bytes); });
  });
}

void CudaBackend::layer_norm_backward(TensorView d_x, TensorView d_gain, TensorView d_bias,
                                      const TensorView& d_out, const TensorView& x,
                                      const TensorView& gain, const TensorView& mean,
                                      const TensorView& rstd) {
  with_compute_type(x.dtype, [&](auto type) {
    cuda::backward<decltype(type), true>(stream(), {d_x, d_gain, d_bias}, d_out,
                                         {x, gain, {}, mean, rstd},
                                         [&](std::int64_t bytes) { return scratch(bytes); });
  });
}

}  // namespace copus
