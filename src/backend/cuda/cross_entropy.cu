#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/launch.cuh"

namespace copus {
namespace cuda {
namespace {

constexpr int kThreads = 512;

// body(column, width) over [0, columns): single floats up to the first 16-byte address, then
// fours, then single floats again, spread over the block's threads.
template <class Body>
__device__ void for_columns(const float* row, int columns, const Body& body) {
  int const tid = static_cast<int>(threadIdx.x);
  int const odd = static_cast<int>(reinterpret_cast<std::uintptr_t>(row) / 4 % 4);
  int head = odd == 0 ? 0 : 4 - odd;
  head = head < columns ? head : columns;
  int const quads = (columns - head) / 4, tail = head + 4 * quads;
  if (tid < head) body(tid, std::integral_constant<int, 1>{});
  for (int q = tid; q < quads; q += kThreads) {
    body(head + 4 * q, std::integral_constant<int, 4>{});
  }
  if (tid < columns - tail) body(tail + tid, std::integral_constant<int, 1>{});
}

// The largest value so far, and the sum of the exponentials of the values less it.
struct Softmax {
  float most, sum;

  __device__ void add(float x) {
    if (x > most) {
      sum = sum * math::exp(most - x) + 1.0f;
      most = x;
    } else if (x != most) {
      // A NaN comes here, and its exponential stays one.
      sum += math::exp(x - most);
    } else if (x > -INFINITY) {
      sum += 1.0f;  // what is -inf adds nothing, also where nothing larger has come yet
    }
  }
  // The same bits whichever of the two is whose: sums of equal pairs of products.
  __device__ static Softmax merged(const Softmax& a, const Softmax& b) {
    float const most = a.most > b.most ? a.most : b.most;
    // Equal maxima, -inf among them, need no factor.
    float const left = a.most == most ? a.sum : a.sum * math::exp(a.most - most);
    float const right = b.most == most ? b.sum : b.sum * math::exp(b.most - most);
    return {most, left + right};
  }
  __device__ Softmax over_warp() const {
    Softmax all = *this;
    for (int step = kWarp / 2; step > 0; step /= 2) {
      Softmax const other{__shfl_xor_sync(kAllLanes, all.most, step),
                          __shfl_xor_sync(kAllLanes, all.sum, step)};
      all = merged(all, other);
    }
    return all;
  }
};

struct StatsOut {
  float* row_max;       // (N)
  float* row_sum;       // (N)
  float* target_logit;  // (N)
};
struct Columns {
  std::int64_t first;
  int valid;
};

// One pass over the logits: a block takes a row.
__global__ void __launch_bounds__(kThreads)
    stats_kernel(StatsOut out, Rows logits, const std::int32_t* targets, Columns columns) {
  __shared__ Softmax warps[kThreads / kWarp];
  int const lane = static_cast<int>(threadIdx.x) % kWarp;
  for (std::int64_t r = blockIdx.x; r < logits.rows; r += gridDim.x) {
    const float* const row = logits.data + r * logits.stride;
    Softmax own{-INFINITY, 0.0f};
    for_columns(row, columns.valid, [&](int c, auto width) {
      constexpr int kWidth = decltype(width)::value;
      Pack<kWidth> const x = load<kWidth>(row + c);
#pragma unroll
      for (int w = 0; w < kWidth; ++w) own.add(x.at[w]);
    });
    own = own.over_warp();
    __syncthreads();  // the last row's sums have been read
    if (lane == 0) warps[threadIdx.x / kWarp] = own;
    __syncthreads();
    if (threadIdx.x >= kWarp) continue;
    Softmax const all =
        (lane < kThreads / kWarp ? warps[lane] : Softmax{-INFINITY, 0.0f}).over_warp();
    if (lane != 0) continue;
    std::int64_t const column = targets[r] - columns.first;
    out.row_max[r] = all.most;
    out.row_sum[r] = all.sum;
    out.target_logit[r] = column >= 0 && column < columns.valid ? row[column] : 0.0f;
  }
}

__global__ void __launch_bounds__(kThreads)
    rescale_kernel(float* sums, float* most, const float* global, std::int64_t rows) {
  std::int64_t const r = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (r >= rows) return;
  sums[r] = math::rescaled_sum(sums[r], most[r], global[r]);
  most[r] = global[r];
}

__global__ void __launch_bounds__(kThreads)
    loss_kernel(float* losses, StatsOut stats, const std::int32_t* targets, std::int64_t n) {
  std::int64_t const r = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (r >= n) return;
  losses[r] = targets[r] < 0
                  ? 0.0f
                  : math::cross_entropy(stats.row_max[r], stats.row_sum[r], stats.target_logit[r]);
}

__global__ void __launch_bounds__(kThreads)
    backward_kernel(Rows logits, const float* row_max, const float* row_sum,
                    const std::int32_t* targets, Columns columns) {
  for (std::int64_t r = blockIdx.x; r < logits.rows; r += gridDim.x) {
    float* const row = logits.data + r * logits.stride;
    bool const masked = targets[r] < 0;
    std::int64_t const column = targets[r] - columns.first;
    float const most = row_max[r], scale = 1.0f / row_sum[r];
    for_columns(row, static_cast<int>(logits.width), [&](int c, auto width) {
      constexpr int kWidth = decltype(width)::value;
      Pack<kWidth> x = load<kWidth>(row + c);
#pragma unroll
      for (int w = 0; w < kWidth; ++w) {
        float const p = math::exp(x.at[w] - most) * scale;
        bool const counts = !masked && c + w < columns.valid;
        x.at[w] = counts ? (c + w == column ? p - 1.0f : p) : 0.0f;
      }
      store<kWidth>(row + c, x);
    });
  }
}

// The same where the gradient is of another type, or elsewhere. A row of bf16 may begin where its
// logits do, and then lies over their first half: a piece of the row has been read before any of
// its gradient is written, and what is written is never ahead of what has been read.
template <class T>
__global__ void __launch_bounds__(kThreads)
    backward_to_kernel(RowsOf<T> out, Rows logits, const float* row_max, const float* row_sum,
                       const std::int32_t* targets, Columns columns) {
  constexpr int kEach = 4;
  int const width = static_cast<int>(logits.width);
  for (std::int64_t r = blockIdx.x; r < logits.rows; r += gridDim.x) {
    const float* const row = logits.data + r * logits.stride;
    T* const to = out.data + r * out.stride;
    bool const masked = targets[r] < 0;
    std::int64_t const column = targets[r] - columns.first;
    float const most = row_max[r], scale = 1.0f / row_sum[r];
    for (int first = 0; first < width; first += kEach * kThreads) {
      float x[kEach];
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        int const c = first + j * kThreads + static_cast<int>(threadIdx.x);
        float const p = c < columns.valid && !masked ? math::exp(row[c] - most) * scale : 0.0f;
        x[j] = c == column && c < columns.valid && !masked ? p - 1.0f : p;
      }
      __syncthreads();
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        int const c = first + j * kThreads + static_cast<int>(threadIdx.x);
        if (c < width) put(to[c], x[j]);
      }
    }
  }
}

template <class T>
T* one_a_row(const TensorView& x, DType dtype, std::int64_t rows) {
  COPUS_CHECK(x.dtype == dtype && x.contiguous() && x.numel() == rows, "one value a row");
  return x.ptr<T>();
}

Columns columns_of(const Rows& x, std::int64_t first, std::int64_t valid) {
  COPUS_CHECK(valid >= 0 && valid <= x.width, "padding is at the end of a row");
  COPUS_CHECK(x.width < (std::int64_t{1} << 31) - 4, "columns are counted in 31 bits");
  return {first, static_cast<int>(valid)};
}

}  // namespace
}  // namespace cuda

void CudaBackend::cross_entropy_stats(TensorView row_max, TensorView row_sum,
                                      TensorView target_logit, const TensorView& logits,
                                      const TensorView& targets, std::int64_t first_column,
                                      std::int64_t valid_columns) {
  Rows const x = rows_of(logits);
  cuda::Columns const columns = cuda::columns_of(x, first_column, valid_columns);
  cuda::StatsOut const out{cuda::one_a_row<float>(row_max, DType::f32, x.rows),
                           cuda::one_a_row<float>(row_sum, DType::f32, x.rows),
                           cuda::one_a_row<float>(target_logit, DType::f32, x.rows)};
  const auto* const target = cuda::one_a_row<std::int32_t>(targets, DType::i32, x.rows);
  if (x.rows == 0) return;
  cuda::stats_kernel<<<cuda::grid_of(x.rows, 1 << 20), cuda::kThreads, 0, stream()>>>(
      out, x, target, columns);
  CUDA_CHECK(cudaGetLastError());
}

void CudaBackend::cross_entropy_rescale(TensorView row_sum, TensorView row_max,
                                        const TensorView& global_max) {
  std::int64_t const rows = row_sum.numel();
  auto* const sums = cuda::one_a_row<float>(row_sum, DType::f32, rows);
  auto* const most = cuda::one_a_row<float>(row_max, DType::f32, rows);
  const auto* const global = cuda::one_a_row<float>(global_max, DType::f32, rows);
  if (rows == 0) return;
  auto const blocks = static_cast<unsigned>(cuda::pieces(rows, cuda::kThreads));
  cuda::rescale_kernel<<<blocks, cuda::kThreads, 0, stream()>>>(sums, most, global, rows);
  CUDA_CHECK(cudaGetLastError());
}

void CudaBackend::cross_entropy_loss(TensorView losses, const TensorView& row_max,
                                     const TensorView& row_sum, const TensorView& target_logit,
                                     const TensorView& targets) {
  std::int64_t const rows = losses.numel();
  auto* const loss = cuda::one_a_row<float>(losses, DType::f32, rows);
  cuda::StatsOut const stats{cuda::one_a_row<float>(row_max, DType::f32, rows),
                             cuda::one_a_row<float>(row_sum, DType::f32, rows),
                             cuda::one_a_row<float>(target_logit, DType::f32, rows)};
  const auto* const target = cuda::one_a_row<std::int32_t>(targets, DType::i32, rows);
  if (rows == 0) return;
  auto const blocks = static_cast<unsigned>(cuda::pieces(rows, cuda::kThreads));
  cuda::loss_kernel<<<blocks, cuda::kThreads, 0, stream()>>>(loss, stats, target, rows);
  CUDA_CHECK(cudaGetLastError());
}

void CudaBackend::cross_entropy_backward(TensorView d_logits, const TensorView& logits,
                                         const TensorView& row_max, const TensorView& row_sum,
                                         const TensorView& targets, std::int64_t first_column,
                                         std::int64_t valid_columns) {
  COPUS_CHECK(d_logits.dims == logits.dims && d_logits.size == logits.size, "one gradient a logit");
  Rows const x = rows_of(logits);
  cuda::Columns const columns = cuda::columns_of(x, first_column, valid_columns);
  const auto* const most = cuda::one_a_row<float>(row_max, DType::f32, x.rows);
  const auto* const sums = cuda::one_a_row<float>(row_sum, DType::f32, x.rows);
  const auto* const target = cuda::one_a_row<std::int32_t>(targets, DType::i32, x.rows);
  if (x.rows == 0) return;
  unsigned const blocks = cuda::grid_of(x.rows, 1 << 20);
  bool const in_place = d_logits.data == logits.data && d_logits.dtype == DType::f32 &&
                        d_logits.stride == logits.stride;
  if (in_place) {
    cuda::backward_kernel<<<blocks, cuda::kThreads, 0, stream()>>>(x, most, sums, target, columns);
  } else if (d_logits.dtype == DType::f32) {
    cuda::backward_to_kernel<<<blocks, cuda::kThreads, 0, stream()>>>(rows_of<float>(d_logits), x,
                                                                      most, sums, target, columns);
  } else {
    cuda::backward_to_kernel<<<blocks, cuda::kThreads, 0, stream()>>>(rows_of<Bf16>(d_logits), x,
                                                                      most, sums, target, columns);
  }
  CUDA_CHECK(cudaGetLastError());
}

}  // namespace copus
