#include <algorithm>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/launch.cuh"

namespace copus {
namespace cuda {
namespace {

constexpr int kThreads = 256;

struct Ids {
  const std::int32_t* id;  // (N)
  std::int64_t first_row;
};

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads) gather_kernel(RowsOf<T> out, Ids ids, RowsOf<T> table) {
  for (std::int64_t r = blockIdx.x; r < out.rows; r += gridDim.x) {
    std::int64_t const row = ids.id[r] - ids.first_row;
    bool const ours = row >= 0 && row < table.rows;
    for (std::int64_t c = threadIdx.x * kWidth; c < out.width; c += kThreads * kWidth) {
      Pack<kWidth> value{};
      if (ours) value = load<kWidth>(table.data + row * table.stride + c);
      store<kWidth>(out.data + r * out.stride + c, value);
    }
  }
}

// order = the rows sorted by id, equal ids in the order of rows: each row counts those before it.
// N^2 comparisons of ids in shared memory; 8,192 rows take some 20 microseconds.
__global__ void __launch_bounds__(kThreads)
    order_kernel(std::int32_t* order, const std::int32_t* ids, std::int64_t n) {
  __shared__ std::int32_t tile[kThreads];
  std::int64_t const r = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  std::int32_t const own = r < n ? ids[r] : 0;
  int before = 0;
  for (std::int64_t begin = 0; begin < n; begin += kThreads) {
    __syncthreads();
    if (begin + threadIdx.x < n) tile[threadIdx.x] = ids[begin + threadIdx.x];
    __syncthreads();
    int const count = n - begin < kThreads ? static_cast<int>(n - begin) : kThreads;
    // Rows of the same id count where they come first.
    int const equals = r - begin < count ? static_cast<int>(r > begin ? r - begin : 0) : count;
    for (int i = 0; i < equals; ++i) before += tile[i] <= own ? 1 : 0;
    for (int i = equals; i < count; ++i) before += tile[i] < own ? 1 : 0;
  }
  if (r < n) order[before] = static_cast<std::int32_t>(r);
}

// A block takes a run of equal ids in the sorted order and adds its rows one after another.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    scatter_kernel(Rows d_table, Ids ids, const std::int32_t* order, RowsOf<T> d_out) {
  for (std::int64_t start = blockIdx.x; start < d_out.rows; start += gridDim.x) {
    std::int32_t const id = ids.id[order[start]];
    std::int64_t const row = id - ids.first_row;
    bool const ours = row >= 0 && row < d_table.rows;
    if (!ours || (start > 0 && ids.id[order[start - 1]] == id)) continue;
    for (std::int64_t c = threadIdx.x * kWidth; c < d_out.width; c += kThreads * kWidth) {
      float* const to = d_table.data + row * d_table.stride + c;
      Pack<kWidth> sum = load<kWidth>(to);
      for (std::int64_t i = start; i < d_out.rows; ++i) {
        std::int32_t const r = order[i];
        if (ids.id[r] != id) break;
        Pack<kWidth> const x = load<kWidth>(d_out.data + r * d_out.stride + c);
#pragma unroll
        for (int w = 0; w < kWidth; ++w) sum.at[w] += x.at[w];
      }
      store<kWidth>(to, sum);
    }
  }
}

// `length`: T, the positions of a sequence.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    add_positions_kernel(RowsOf<T> x, RowsOf<T> table, std::int64_t length,
                         std::int64_t first_position) {
  for (std::int64_t r = blockIdx.x; r < x.rows; r += gridDim.x) {
    const T* const from = table.data + (first_position + r % length) * table.stride;
    T* const to = x.data + r * x.stride;
    for (std::int64_t c = threadIdx.x * kWidth; c < x.width; c += kThreads * kWidth) {
      Pack<kWidth> sum = load<kWidth>(to + c);
      Pack<kWidth> const position = load<kWidth>(from + c);
#pragma unroll
      for (int w = 0; w < kWidth; ++w) sum.at[w] += position.at[w];
      store<kWidth>(to + c, sum);
    }
  }
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    positions_backward_kernel(Rows d_table, RowsOf<T> d_x, std::int64_t length,
                              std::int64_t first_position) {
  for (std::int64_t t = blockIdx.x; t < length; t += gridDim.x) {
    float* const to = d_table.data + (first_position + t) * d_table.stride;
    for (std::int64_t c = threadIdx.x * kWidth; c < d_x.width; c += kThreads * kWidth) {
      Pack<kWidth> sum = load<kWidth>(to + c);
      for (std::int64_t r = t; r < d_x.rows; r += length) {
        Pack<kWidth> const x = load<kWidth>(d_x.data + r * d_x.stride + c);
#pragma unroll
        for (int w = 0; w < kWidth; ++w) sum.at[w] += x.at[w];
      }
      store<kWidth>(to + c, sum);
    }
  }
}

Ids ids_of(const TensorView& ids, std::int64_t rows, std::int64_t first_row) {
  COPUS_CHECK(ids.dtype == DType::i32 && ids.contiguous() && ids.numel() == rows, "one id a row");
  return {ids.ptr<std::int32_t>(), first_row};
}

template <class T>
unsigned blocks_of(const RowsOf<T>& x) {
  return grid_of(x.rows, 1 << 20);
}

void sort_rows(cudaStream_t stream, std::int32_t* order, const std::int32_t* ids,
               std::int64_t rows) {
  auto const blocks = static_cast<unsigned>(pieces(rows, kThreads));
  order_kernel<<<blocks, kThreads, 0, stream>>>(order, ids, rows);
  CUDA_CHECK(cudaGetLastError());
}

template <class T>
void gather(cudaStream_t stream, const TensorView& out, const TensorView& ids,
            const TensorView& table, std::int64_t first_row) {
  RowsOf<T> const to = rows_of<T>(out), from = rows_of<T>(table);
  COPUS_CHECK(to.width == from.width, "a row of the table fills a row of the output");
  Ids const id = ids_of(ids, to.rows, first_row);
  if (to.rows == 0 || to.width == 0) return;
  auto* const kernel = in_fours(to) && in_fours(from) ? gather_kernel<T, 4> : gather_kernel<T, 1>;
  kernel<<<blocks_of(to), kThreads, 0, stream>>>(to, id, from);
  CUDA_CHECK(cudaGetLastError());
}

// `order`: the rows of d_out, sorted by id.
template <class T>
void scatter(cudaStream_t stream, const Rows& to, const Ids& id, const std::int32_t* order,
             const RowsOf<T>& from) {
  auto* const kernel = in_fours(to) && in_fours(from) ? scatter_kernel<T, 4> : scatter_kernel<T, 1>;
  kernel<<<blocks_of(from), kThreads, 0, stream>>>(to, id, order, from);
  CUDA_CHECK(cudaGetLastError());
}

template <class T>
void add_to_rows(cudaStream_t stream, const TensorView& x, const TensorView& table,
                 std::int64_t first_position) {
  RowsOf<T> const to = rows_of<T>(x), from = rows_of<T>(table);
  std::int64_t const length = x.size[1];
  COPUS_CHECK(to.width == from.width && first_position >= 0 && first_position + length <= from.rows,
              "the table holds every position");
  if (to.rows == 0 || to.width == 0) return;
  auto* const kernel =
      in_fours(to) && in_fours(from) ? add_positions_kernel<T, 4> : add_positions_kernel<T, 1>;
  kernel<<<blocks_of(to), kThreads, 0, stream>>>(to, from, length, first_position);
  CUDA_CHECK(cudaGetLastError());
}

template <class T>
void add_to_positions(cudaStream_t stream, const TensorView& d_table, const TensorView& d_x,
                      std::int64_t first_position) {
  Rows const to = rows_of(d_table);
  RowsOf<T> const from = rows_of<T>(d_x);
  std::int64_t const length = d_x.size[1];
  COPUS_CHECK(to.width == from.width && first_position >= 0 && first_position + length <= to.rows,
              "the table holds every position");
  if (from.rows == 0 || from.width == 0) return;
  auto* const kernel = in_fours(to) && in_fours(from) ? positions_backward_kernel<T, 4>
                                                      : positions_backward_kernel<T, 1>;
  kernel<<<grid_of(length, 1 << 20), kThreads, 0, stream>>>(to, from, length, first_position);
  CUDA_CHECK(cudaGetLastError());
}

}  // namespace
}  // namespace cuda

void CudaBackend::embedding(TensorView out, const TensorView& ids, const TensorView& table,
                            std::int64_t first_row) {
  with_compute_type(out.dtype, [&](auto type) {
    cuda::gather<decltype(type)>(stream(), out, ids, table, first_row);
  });
}

void CudaBackend::embedding_backward(TensorView d_table, const TensorView& ids,
                                     const TensorView& d_out, std::int64_t first_row) {
  Rows const to = rows_of(d_table);
  with_compute_type(d_out.dtype, [&](auto type) {
    auto const from = rows_of<decltype(type)>(d_out);
    COPUS_CHECK(to.width == from.width, "a row of the gradient fits a row of the table");
    cuda::Ids const id = cuda::ids_of(ids, from.rows, first_row);
    if (from.rows == 0 || from.width == 0) return;
    auto* const order = reinterpret_cast<std::int32_t*>(scratch(from.rows * 4));
    cuda::sort_rows(stream(), order, id.id, from.rows);
    cuda::scatter(stream(), to, id, order, from);
  });
}

void CudaBackend::add_positions(TensorView x, const TensorView& table,
                                std::int64_t first_position) {
  COPUS_CHECK(x.dims == 3, "x (B, T, C)");
  with_compute_type(x.dtype, [&](auto type) {
    cuda::add_to_rows<decltype(type)>(stream(), x, table, first_position);
  });
}

void CudaBackend::positions_backward(TensorView d_table, const TensorView& d_x,
                                     std::int64_t first_position) {
  COPUS_CHECK(d_x.dims == 3, "d_x (B, T, C)");
  with_compute_type(d_x.dtype, [&](auto type) {
    cuda::add_to_positions<decltype(type)>(stream(), d_table, d_x, first_position);
  });
}

}  // namespace copus
