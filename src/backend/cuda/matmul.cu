#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"

namespace copus {
namespace cuda {
namespace {

constexpr int kThreads = 256;

template <class Out, class In>
__global__ void __launch_bounds__(kThreads)
    bias_kernel(RowsOf<Out> out, const In* bias, bool keep) {
  std::int64_t const step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t row = blockIdx.y; row < out.rows; row += gridDim.y) {
    Out* const to = out.data + row * out.stride;
    for (std::int64_t c = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; c < out.width;
         c += step) {
      put(to[c], (keep ? get(to[c]) : 0.0f) + (bias != nullptr ? get(bias[c]) : 0.0f));
    }
  }
}

// A block of (32, kDown) threads folds the partial sums of 32 columns: threads of one column take
// every kDown-th block each, and are added in their order.
constexpr int kDown = 16;
__global__ void __launch_bounds__(kWarp* kDown) fold_kernel(float* out, PartialSums sums) {
  __shared__ float part[kDown][kWarp];
  std::int64_t const c = std::int64_t{blockIdx.x} * kWarp + threadIdx.x;
  float total = 0.0f;
  if (c < sums.width) {
    for (std::int64_t b = threadIdx.y; b < sums.blocks; b += kDown) {
      total += sums.partials[b * sums.stride + c];
    }
  }
  part[threadIdx.y][threadIdx.x] = total;
  __syncthreads();
  if (threadIdx.y != 0 || c >= sums.width) return;
  total = 0.0f;
  for (int i = 0; i < kDown; ++i) total += part[i][threadIdx.x];
  out[c] += total;
}

// A block of (32, kRowsAbreast) threads sums kChunk rows of 32 packs of columns.
constexpr int kRowsAbreast = 8;
constexpr std::int64_t kChunk = 128;
template <class T, int kWidth>
__global__ void __launch_bounds__(kWarp* kRowsAbreast) column_kernel(float* partials, RowsOf<T> x) {
  __shared__ float part[kRowsAbreast][kWarp * kWidth];
  std::int64_t const c = (std::int64_t{blockIdx.x} * kWarp + threadIdx.x) * kWidth;
  std::int64_t const first = blockIdx.y * kChunk;
  std::int64_t const last = first + kChunk < x.rows ? first + kChunk : x.rows;
  Pack<kWidth> total{};
  if (c < x.width) {
    for (std::int64_t r = first + threadIdx.y; r < last; r += kRowsAbreast) {
      Pack<kWidth> const from = load<kWidth>(x.data + r * x.stride + c);
      for (int w = 0; w < kWidth; ++w) total.at[w] += from.at[w];
    }
  }
  for (int w = 0; w < kWidth; ++w) part[threadIdx.y][threadIdx.x * kWidth + w] = total.at[w];
  __syncthreads();
  if (threadIdx.y != 0 || c >= x.width) return;
  for (int w = 0; w < kWidth; ++w) {
    float sum = 0.0f;
    for (int i = 0; i < kRowsAbreast; ++i) sum += part[i][threadIdx.x * kWidth + w];
    partials[blockIdx.y * x.width + c + w] = sum;
  }
}

// A library wants a leading dimension of at least the width, also of a single row.
std::int64_t leading(const TensorView& x) {
  std::int64_t const width = x.size[1] > 1 ? x.size[1] : 1;
  return x.stride[0] > width ? x.stride[0] : width;
}

template <class Out, class In>
void launch_bias(cudaStream_t stream, const Product& p, bool keep) {
  RowsOf<Out> const out{static_cast<Out*>(p.out), p.m, p.n, p.ldc};
  dim3 const grid(grid_of(pieces(out.width, kThreads)), grid_of(out.rows));
  bias_kernel<<<grid, kThreads, 0, stream>>>(out, static_cast<const In*>(p.bias), keep);
  CUDA_CHECK(cudaGetLastError());
}

// One number for the rows of each chunk and each column.
template <class T>
void sum_chunks(cudaStream_t stream, float* partials, const RowsOf<T>& x, std::int64_t chunks) {
  bool const fours = in_fours(x);
  dim3 const grid(static_cast<unsigned>(pieces(x.width, kWarp * (fours ? 4 : 1))),
                  static_cast<unsigned>(chunks));
  auto* const kernel = fours ? column_kernel<T, 4> : column_kernel<T, 1>;
  kernel<<<grid, dim3(kWarp, kRowsAbreast), 0, stream>>>(partials, x);
  CUDA_CHECK(cudaGetLastError());
}

}  // namespace

void add_bias(cudaStream_t stream, const Product& p, bool keep) {
  if (p.m == 0 || p.n == 0) return;
  if (p.type == DType::f32) return launch_bias<float, float>(stream, p, keep);
  if (p.out_type == DType::f32) return launch_bias<float, Bf16>(stream, p, keep);
  launch_bias<Bf16, Bf16>(stream, p, keep);
}

void fold_columns(cudaStream_t stream, float* out, const PartialSums& sums) {
  if (sums.width == 0) return;
  unsigned const blocks = static_cast<unsigned>(pieces(sums.width, kWarp));
  fold_kernel<<<blocks, dim3(kWarp, kDown), 0, stream>>>(out, sums);
  CUDA_CHECK(cudaGetLastError());
}

}  // namespace cuda

void CudaBackend::matmul(TensorView out, const TensorView& a, const TensorView& b,
                         const MatmulOptions& options, const TensorView& bias) {
  COPUS_CHECK(out.dims == 2 && a.dims == 2 && b.dims == 2, "matrices");
  bool const half = a.dtype == DType::bf16;
  COPUS_CHECK((half || a.dtype == DType::f32) && b.dtype == a.dtype &&
                  (out.dtype == DType::f32 || (half && out.dtype == DType::bf16)) &&
                  !(options.accumulate && out.dtype == DType::bf16),
              "products of f32, or of bf16 to either; what accumulates is f32");
  std::int64_t const m = options.transpose_a ? a.size[1] : a.size[0];
  std::int64_t const k = options.transpose_a ? a.size[0] : a.size[1];
  std::int64_t const n = options.transpose_b ? b.size[0] : b.size[1];
  COPUS_CHECK((options.transpose_b ? b.size[1] : b.size[0]) == k, "inner sizes of a product agree");
  COPUS_CHECK(out.size[0] == m && out.size[1] == n, "the output has the product's sizes");
  COPUS_CHECK(!bias || (bias.dims == 1 && bias.size[0] == n && bias.dtype == a.dtype),
              "one bias a column");
  if (m == 0 || n == 0) return;
  cuda::Product const product{options.transpose_a,
                              options.transpose_b,
                              options.accumulate,
                              m,
                              n,
                              k,
                              cuda::leading(a),
                              cuda::leading(b),
                              cuda::leading(out),
                              a.dtype,
                              out.dtype,
                              out.data,
                              a.data,
                              b.data,
                              bias.data};
  // A product over nothing is zero.
  if (k == 0) return cuda::add_bias(stream(), product, options.accumulate);
  gemm_.run(stream(), product);
}

void CudaBackend::column_sum(TensorView d_bias, const TensorView& d_out) {
  with_compute_type(d_out.dtype, [&](auto type) {
    auto const x = rows_of<decltype(type)>(d_out);
    COPUS_CHECK(d_bias.dims == 1 && d_bias.size[0] == x.width, "one sum a column");
    if (x.rows == 0 || x.width == 0) return;
    std::int64_t const chunks = cuda::pieces(x.rows, cuda::kChunk);
    COPUS_CHECK(chunks <= 65535, "rows that fit a grid");
    auto* const partials = reinterpret_cast<float*>(scratch(chunks * x.width * 4));
    cuda::sum_chunks(stream(), partials, x, chunks);
    cuda::PartialSums const sums{partials, chunks, x.width, x.width};
    cuda::fold_columns(stream(), d_bias.ptr<float>(), sums);
  });
}

}  // namespace copus
