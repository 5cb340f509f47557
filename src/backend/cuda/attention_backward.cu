#include "backend/cuda/attention_sizes.cuh"
#include "backend/cuda/cuda_backend.h"
#include "copus/core/math.h"

namespace copus {
namespace cuda {
namespace {

// P = exp(scores - lse), dP = d_out v^T, dS = P (dP - d_out . out): the softmax's gradient, with
// the dot product `along` in place of the sum over keys of P dP.
template <class T>
struct Backward {
  Heads<T> d_q, d_k, d_v, d_out, q, k, v, out;
  const float* lse;  // (B, H, T)
  float* along;      // (B, H, T)
  AttentionSizes sizes;
  AttentionDropout dropout;
};

constexpr int kDotThreads = 256;

// along = d_out . out; a warp takes a row.
template <class T>
__global__ void __launch_bounds__(kDotThreads) along_kernel(Backward<T> a, std::int64_t rows) {
  AttentionSizes const& s = a.sizes;
  std::int64_t const i =
      (std::int64_t{blockIdx.x} * kDotThreads + threadIdx.x) / kWarp;  // (b, h, t)
  if (i >= rows) return;
  std::int64_t const t = i % s.T, h = i / s.T % s.H, b = i / s.T / s.H;
  const T* const x = a.d_out.at(b, h) + t * a.d_out.row_stride;
  const T* const y = a.out.at(b, h) + t * a.out.row_stride;
  float total = 0.0f;
  for (int d = static_cast<int>(threadIdx.x) % kWarp; d < s.D; d += kWarp) {
    total = fmaf(get(x[d]), get(y[d]), total);
  }
  total = warp_sum(total);
  if (threadIdx.x % kWarp == 0) a.along[i] = total;
}

// From scores and dP of a tile to P (times its dropout factor) and dS. `factors` holds the tile's
// dropout factors where there are any.
template <int kM, int kN, int kKeys, class T>
__device__ void softmax_backward(float (&p)[kM][kN], float (&d_p)[kM][kN], const Backward<T>& a,
                                 std::int64_t head, int query, int key, const float* factors,
                                 int ty, int tx) {
#pragma unroll
  for (int i = 0; i < kM; ++i) {
    int const row = query + ty * kM + i;
    bool const there = row < a.sizes.T;
    float const lse = there ? a.lse[head + row] : 0.0f, along = there ? a.along[head + row] : 0.0f;
#pragma unroll
    for (int j = 0; j < kN; ++j) {
      int const column = tx + kSide * j;
      bool const seen = there && key + column <= row;
      float const probability = math::exp(p[i][j] * a.sizes.scale - lse);
      float const factor = a.dropout.on ? factors[(ty * kM + i) * kRow<kKeys> + column] : 1.0f;
      p[i][j] = seen ? probability * factor : 0.0f;
      d_p[i][j] = seen ? probability * (d_p[i][j] * factor - along) : 0.0f;
    }
  }
}

template <int kM, int kN, int kKeys>
__device__ void keep_tile(float* tile, const float (&x)[kM][kN], int ty, int tx) {
#pragma unroll
  for (int i = 0; i < kM; ++i) {
#pragma unroll
    for (int j = 0; j < kN; ++j) tile[(ty * kM + i) * kRow<kKeys> + tx + kSide * j] = x[i][j];
  }
}

// The tiles of a block in shared memory.
template <int kDepth, int kQueries, int kKeys>
struct BackwardTiles {
  static constexpr int kRows = (2 * kQueries + 2 * kKeys) * kRow<kDepth>;
  static constexpr int kScores = kQueries * kRow<kKeys>;
  float *q, *d_out, *k, *v, *p, *d_s;

  __device__ explicit BackwardTiles(float* shared)
      : q(shared),
        d_out(q + kQueries * kRow<kDepth>),
        k(d_out + kQueries * kRow<kDepth>),
        v(k + kKeys * kRow<kDepth>),
        p(v + kKeys * kRow<kDepth>),
        d_s(p + kScores) {}
};

// A block takes kQueries queries of one head and walks the keys they see: d_q = scale dS k.
template <class T, int kDepth, int kQueries, int kKeys>
__global__ void __launch_bounds__(kTileThreads, kDepth <= 128 ? 2 : 1) d_q_kernel(Backward<T> a) {
  constexpr int kM = kQueries / kSide, kN = kKeys / kSide;
  extern __shared__ float4 shared[];
  BackwardTiles<kDepth, kQueries, kKeys> const tile(reinterpret_cast<float*>(shared));
  AttentionSizes const& s = a.sizes;
  int const tx = static_cast<int>(threadIdx.x) % kSide, ty = static_cast<int>(threadIdx.x) / kSide;
  int const first = static_cast<int>(gridDim.z - 1 - blockIdx.z) * kQueries;
  int const h = static_cast<int>(blockIdx.x), b = static_cast<int>(blockIdx.y);
  int const kv = h / (s.H / s.K);
  std::int64_t const head = (std::int64_t{b} * s.H + h) * s.T;
  RowSums<kM, kDepth> sums;
  sums.clear();
  load_tile<kQueries, kDepth>(tile.q, a.q.at(b, h), a.q.row_stride, first, s);
  load_tile<kQueries, kDepth>(tile.d_out, a.d_out.at(b, h), a.d_out.row_stride, first, s);
  int const last = first + kQueries < s.T ? first + kQueries : s.T;
  for (int key = 0; key < last; key += kKeys) {
    __syncthreads();  // the last tile has been read
    load_tile<kKeys, kDepth>(tile.k, a.k.at(b, kv), a.k.row_stride, key, s);
    load_tile<kKeys, kDepth>(tile.v, a.v.at(b, kv), a.v.row_stride, key, s);
    if (a.dropout.on) {
      load_factors<kQueries, kKeys>(tile.p, a.dropout.mask, a.dropout.first_of(b, h, s.T), first,
                                    key, s.T);
    }
    __syncthreads();
    float p[kM][kN], d_p[kM][kN];
    row_products<kM, kN, kDepth>(p, tile.q, tile.k, ty, tx);
    row_products<kM, kN, kDepth>(d_p, tile.d_out, tile.v, ty, tx);
    softmax_backward<kM, kN, kKeys>(p, d_p, a, head, first, key, tile.p, ty, tx);
    // In place of the factors, each of which was this thread's to read.
    keep_tile<kM, kN, kKeys>(tile.p, d_p, ty, tx);
    __syncthreads();
    add_products<kM, kKeys, kDepth>(sums, tile.p, tile.k, ty, tx);
  }
#pragma unroll
  for (int i = 0; i < kM; ++i) sums.multiply(i, s.scale);
  sums.write(a.d_q.at(b, h), a.d_q.row_stride, first, s, ty, tx);
}

// A block takes kKeys keys of one kv head and walks, head by head of its group, the queries that
// see them: d_v = P^T d_out, d_k = scale dS^T q. One block adds all, so the order is fixed.
template <class T, int kDepth, int kQueries, int kKeys>
__global__ void __launch_bounds__(kTileThreads, kDepth <= 64 ? 2 : 1) d_kv_kernel(Backward<T> a) {
  constexpr int kM = kQueries / kSide, kN = kKeys / kSide;
  extern __shared__ float4 shared[];
  BackwardTiles<kDepth, kQueries, kKeys> const tile(reinterpret_cast<float*>(shared));
  AttentionSizes const& s = a.sizes;
  int const tx = static_cast<int>(threadIdx.x) % kSide, ty = static_cast<int>(threadIdx.x) / kSide;
  int const key = static_cast<int>(blockIdx.z) * kKeys;  // the first are seen the most
  int const kv = static_cast<int>(blockIdx.x), b = static_cast<int>(blockIdx.y);
  int const group = s.H / s.K;
  RowSums<kN, kDepth> d_k, d_v;
  d_k.clear();
  d_v.clear();
  load_tile<kKeys, kDepth>(tile.k, a.k.at(b, kv), a.k.row_stride, key, s);
  load_tile<kKeys, kDepth>(tile.v, a.v.at(b, kv), a.v.row_stride, key, s);
  for (int h = kv * group; h < (kv + 1) * group; ++h) {
    std::int64_t const head = (std::int64_t{b} * s.H + h) * s.T;
    for (int query = key / kQueries * kQueries; query < s.T; query += kQueries) {
      __syncthreads();  // the last tile has been read
      load_tile<kQueries, kDepth>(tile.q, a.q.at(b, h), a.q.row_stride, query, s);
      load_tile<kQueries, kDepth>(tile.d_out, a.d_out.at(b, h), a.d_out.row_stride, query, s);
      if (a.dropout.on) {
        load_factors<kQueries, kKeys>(tile.p, a.dropout.mask, a.dropout.first_of(b, h, s.T), query,
                                      key, s.T);
      }
      __syncthreads();
      float p[kM][kN], d_p[kM][kN];
      row_products<kM, kN, kDepth>(p, tile.q, tile.k, ty, tx);
      row_products<kM, kN, kDepth>(d_p, tile.d_out, tile.v, ty, tx);
      softmax_backward<kM, kN, kKeys>(p, d_p, a, head, query, key, tile.p, ty, tx);
      keep_tile<kM, kN, kKeys>(tile.p, p, ty, tx);
      keep_tile<kM, kN, kKeys>(tile.d_s, d_p, ty, tx);
      __syncthreads();
      add_products_transposed<kN, kQueries, kDepth>(d_v, tile.p, tile.d_out, ty, tx);
      add_products_transposed<kN, kQueries, kDepth>(d_k, tile.d_s, tile.q, ty, tx);
    }
  }
#pragma unroll
  for (int i = 0; i < kN; ++i) d_k.multiply(i, s.scale);
  d_k.write(a.d_k.at(b, kv), a.d_k.row_stride, key, s, ty, tx);
  d_v.write(a.d_v.at(b, kv), a.d_v.row_stride, key, s, ty, tx);
}

template <int kDepth, int kQueries, int kKeys, class T>
void launch_d_q(cudaStream_t stream, const Backward<T>& a, std::int64_t batch) {
  using Tiles = BackwardTiles<kDepth, kQueries, kKeys>;
  constexpr std::size_t kShared = 4 * (Tiles::kRows + Tiles::kScores);  // no tile of dS apart
  auto* const kernel = d_q_kernel<T, kDepth, kQueries, kKeys>;
  allow_shared(kernel, kShared);
  dim3 const grid(static_cast<unsigned>(a.sizes.H), static_cast<unsigned>(batch),
                  static_cast<unsigned>(pieces(a.sizes.T, kQueries)));
  kernel<<<grid, kTileThreads, kShared, stream>>>(a);
  CUDA_CHECK(cudaGetLastError());
}

template <int kDepth, int kQueries, int kKeys, class T>
void launch_d_kv(cudaStream_t stream, const Backward<T>& a, std::int64_t batch) {
  using Tiles = BackwardTiles<kDepth, kQueries, kKeys>;
  constexpr std::size_t kShared = 4 * (Tiles::kRows + 2 * Tiles::kScores);
  auto* const kernel = d_kv_kernel<T, kDepth, kQueries, kKeys>;
  allow_shared(kernel, kShared);
  dim3 const grid(static_cast<unsigned>(a.sizes.K), static_cast<unsigned>(batch),
                  static_cast<unsigned>(pieces(a.sizes.T, kKeys)));
  kernel<<<grid, kTileThreads, kShared, stream>>>(a);
  CUDA_CHECK(cudaGetLastError());
}

template <class T>
void launch_along(cudaStream_t stream, const Backward<T>& a, std::int64_t rows) {
  auto const blocks = static_cast<unsigned>(pieces(rows, kDotThreads / kWarp));
  along_kernel<<<blocks, kDotThreads, 0, stream>>>(a, rows);
  CUDA_CHECK(cudaGetLastError());
}

// Tiles so large that an A100's shared memory still holds them.
template <class T>
void backward(cudaStream_t stream, const Backward<T>& a, std::int64_t batch) {
  std::int64_t const width = a.sizes.D;
  if (width > kWidestHead) refuse_head_width(width);
  launch_along(stream, a, batch * a.sizes.H * a.sizes.T);
  if (width <= 64) {
    launch_d_q<64, 64, 64>(stream, a, batch);
    launch_d_kv<64, 32, 64>(stream, a, batch);  // 64 queries would spill registers
  } else if (width <= 128) {
    launch_d_q<128, 64, 32>(stream, a, batch);
    launch_d_kv<128, 32, 64>(stream, a, batch);
  } else {
    launch_d_q<256, 32, 32>(stream, a, batch);
    launch_d_kv<256, 32, 32>(stream, a, batch);
  }
}

}  // namespace
}  // namespace cuda

void CudaBackend::attention_backward(TensorView d_q, TensorView d_k, TensorView d_v,
                                     const TensorView& d_out, const TensorView& q,
                                     const TensorView& k, const TensorView& v,
                                     const TensorView& out, const TensorView& lse,
                                     const AttentionOptions& options) {
  cuda::AttentionSizes sizes = cuda::sizes_of(q, k, v, options);
  COPUS_CHECK(d_q.size == q.size && d_k.size == k.size && d_v.size == v.size &&
                  d_out.size == q.size && out.size == q.size,
              "gradients have the sizes of what they belong to");
  COPUS_CHECK(lse.contiguous() && lse.numel() * q.size[3] == q.numel(), "lse (B, H, T)");
  if (q.numel() == 0) return;
  if (own_kernel_reason(cuda::task_of(q, options)).empty() &&
      fused_attention_.backward(stream(), {q, k, v, out, lse, options.scale},
                                {d_q, d_k, d_v, d_out}, attention_room(options))) {
    return;
  }
  sizes.fours = sizes.fours && cuda::heads_in_fours(d_q) && cuda::heads_in_fours(d_k) &&
                cuda::heads_in_fours(d_v) && cuda::heads_in_fours(d_out);
  auto* const along = reinterpret_cast<float*>(scratch(lse.bytes()));
  with_compute_type(q.dtype, [&](auto type) {
    using T = decltype(type);
    cuda::backward<T>(
        stream(),
        {cuda::heads_of<T>(d_q), cuda::heads_of<T>(d_k), cuda::heads_of<T>(d_v),
         cuda::heads_of<T>(d_out), cuda::heads_of<T>(q), cuda::heads_of<T>(k), cuda::heads_of<T>(v),
         cuda::heads_of<T>(out), lse.ptr<float>(), along, sizes, cuda::dropout_of(options)},
        q.size[0]);
  });
}

}  // namespace copus
