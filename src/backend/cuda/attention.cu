#include "backend/cuda/attention_sizes.cuh"
#include "backend/cuda/cuda_backend.h"
#include "copus/core/math.h"

namespace copus {
namespace cuda {
namespace {

template <class T>
struct Forward {
  Heads<T> out, q, k, v;
  float* lse;  // (B, H, T)
  AttentionSizes sizes;
  AttentionDropout dropout;
};

template <int kDepth, int kQueries, int kKeys>
constexpr std::int64_t kForwardShared = 4 * (std::int64_t{kQueries + kKeys} * kRow<kDepth> +
                                             std::int64_t{kQueries} * kRow<kKeys>);

// A query's softmax so far: the largest score and the sum of exponentials less it (Milakov and
// Gimelshein 2018).
struct Running {
  float most = -INFINITY, sum = 0.0f;
};

// scores become probabilities times `sum`; `sums` of the old maximum become those of the new one.
template <int kM, int kN, int kDepth>
__device__ void online_softmax(float (&scores)[kM][kN], Running (&rows)[kM],
                               RowSums<kM, kDepth>& sums) {
#pragma unroll
  for (int i = 0; i < kM; ++i) {
    float most = rows[i].most;
#pragma unroll
    for (int j = 0; j < kN; ++j) most = scores[i][j] > most ? scores[i][j] : most;
    most = most_over_keys(most);
    float const correction = math::exp(rows[i].most - most);
    float total = 0.0f;
#pragma unroll
    for (int j = 0; j < kN; ++j) {
      scores[i][j] = math::exp(scores[i][j] - most);
      total += scores[i][j];
    }
    rows[i].sum = fmaf(rows[i].sum, correction, sum_over_keys(total));
    rows[i].most = most;
    sums.multiply(i, correction);
  }
}

// A block takes kQueries queries of one head and walks the keys they see, tile by tile
// (FlashAttention, Dao et al. 2022). Keys and values take turns in one tile.
template <class T, int kDepth, int kQueries, int kKeys>
__global__ void __launch_bounds__(kTileThreads, kDepth <= 128 ? 2 : 1)
    attention_kernel(Forward<T> a) {
  constexpr int kM = kQueries / kSide, kN = kKeys / kSide;
  extern __shared__ float4 shared[];
  auto* const q_tile = reinterpret_cast<float*>(shared);
  float* const kv_tile = q_tile + kQueries * kRow<kDepth>;
  float* const weights = kv_tile + kKeys * kRow<kDepth>;
  AttentionSizes const& s = a.sizes;
  int const tx = static_cast<int>(threadIdx.x) % kSide, ty = static_cast<int>(threadIdx.x) / kSide;
  // The last queries see the most keys: they start first.
  int const first = static_cast<int>(gridDim.z - 1 - blockIdx.z) * kQueries;
  int const h = static_cast<int>(blockIdx.x), b = static_cast<int>(blockIdx.y);
  int const kv = h / (s.H / s.K);
  const T* const keys = a.k.at(b, kv);
  const T* const values = a.v.at(b, kv);
  RowSums<kM, kDepth> sums;
  Running rows[kM];
  sums.clear();
  load_tile<kQueries, kDepth>(q_tile, a.q.at(b, h), a.q.row_stride, first, s);
  int const last = first + kQueries < s.T ? first + kQueries : s.T;
  for (int key = 0; key < last; key += kKeys) {
    __syncthreads();  // the last tile's weights and values have been read
    load_tile<kKeys, kDepth>(kv_tile, keys, a.k.row_stride, key, s);
    if (a.dropout.on) {
      load_factors<kQueries, kKeys>(weights, a.dropout.mask, a.dropout.first_of(b, h, s.T), first,
                                    key, s.T);
    }
    __syncthreads();
    float scores[kM][kN];
    row_products<kM, kN, kDepth>(scores, q_tile, kv_tile, ty, tx);
#pragma unroll
    for (int i = 0; i < kM; ++i) {
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        bool const seen = key + tx + kSide * j <= first + ty * kM + i;
        scores[i][j] = seen ? scores[i][j] * s.scale : -INFINITY;
      }
    }
    online_softmax<kM, kN, kDepth>(scores, rows, sums);
#pragma unroll
    for (int i = 0; i < kM; ++i) {
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        // The factor in this place was this thread's to read.
        float& weight = weights[(ty * kM + i) * kRow<kKeys> + tx + kSide * j];
        weight = a.dropout.on ? scores[i][j] * weight : scores[i][j];
      }
    }
    __syncthreads();  // the keys have been read
    load_tile<kKeys, kDepth>(kv_tile, values, a.v.row_stride, key, s);
    __syncthreads();
    add_products<kM, kKeys, kDepth>(sums, weights, kv_tile, ty, tx);
  }
#pragma unroll
  for (int i = 0; i < kM; ++i) {
    int const row = first + ty * kM + i;
    sums.multiply(i, 1.0f / rows[i].sum);
    if (tx == 0 && row < s.T) {
      a.lse[(std::int64_t{b} * s.H + h) * s.T + row] = rows[i].most + logf(rows[i].sum);
    }
  }
  sums.write(a.out.at(b, h), a.out.row_stride, first, s, ty, tx);
}

template <int kDepth, int kQueries, int kKeys, class T>
void launch(cudaStream_t stream, const Forward<T>& a, std::int64_t batch) {
  constexpr std::int64_t kShared = kForwardShared<kDepth, kQueries, kKeys>;
  auto* const kernel = attention_kernel<T, kDepth, kQueries, kKeys>;
  allow_shared(kernel, kShared);
  dim3 const grid(static_cast<unsigned>(a.sizes.H), static_cast<unsigned>(batch),
                  static_cast<unsigned>(pieces(a.sizes.T, kQueries)));
  kernel<<<grid, kTileThreads, kShared, stream>>>(a);
  CUDA_CHECK(cudaGetLastError());
}

template <class T>
void forward(cudaStream_t stream, const Forward<T>& a, std::int64_t batch) {
  std::int64_t const width = a.sizes.D;
  if (width <= 64) return launch<64, 64, 64>(stream, a, batch);
  if (width <= 128) return launch<128, 64, 64>(stream, a, batch);
  if (width <= kWidestHead) return launch<256, 64, 64>(stream, a, batch);
  refuse_head_width(width);
}

}  // namespace
}  // namespace cuda

void CudaBackend::attention(TensorView out, TensorView lse, const TensorView& q,
                            const TensorView& k, const TensorView& v,
                            const AttentionOptions& options) {
  cuda::AttentionSizes sizes = cuda::sizes_of(q, k, v, options);
  COPUS_CHECK(out.size == q.size && lse.contiguous() && lse.numel() * q.size[3] == q.numel(),
              "out as q, lse (B, H, T)");
  if (q.numel() == 0) return;
  if (own_kernel_reason(cuda::task_of(q, options)).empty() &&
      fused_attention_.forward(stream(), {q, k, v, out, lse, options.scale},
                               attention_room(options))) {
    return;
  }
  sizes.fours = sizes.fours && cuda::heads_in_fours(out);
  with_compute_type(q.dtype, [&](auto type) {
    using T = decltype(type);
    cuda::forward<T>(stream(),
                     {cuda::heads_of<T>(out), cuda::heads_of<T>(q), cuda::heads_of<T>(k),
                      cuda::heads_of<T>(v), lse.ptr<float>(), sizes, cuda::dropout_of(options)},
                     q.size[0]);
  });
}

}  // namespace copus
