#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/launch.cuh"

namespace copus {
namespace cuda {
namespace {

constexpr int kThreads = 256;

// Elements of a view of at most four dimensions, counted in row-major order.
struct Places {
  std::int64_t size[TensorView::kMaxDims], stride[TensorView::kMaxDims];
};
Places places_of(const TensorView& x) {
  Places p;
  int const missing = TensorView::kMaxDims - x.dims;
  for (int d = 0; d < TensorView::kMaxDims; ++d) {
    bool const there = d >= missing;
    auto const from = static_cast<std::size_t>(there ? d - missing : 0);
    p.size[d] = there ? x.size[from] : 1;
    p.stride[d] = there ? x.stride[from] : 0;
  }
  return p;
}
__device__ std::int64_t place(const Places& p, std::int64_t element) {
  std::int64_t offset = 0;
  for (int d = TensorView::kMaxDims - 1; d >= 0; --d) {
    offset += element % p.size[d] * p.stride[d];
    element /= p.size[d];
  }
  return offset;
}

// out = x, or zeros where x is null.
template <class T>
__global__ void __launch_bounds__(kThreads)
    copy_kernel(T* out, Places to, const T* x, Places from, std::int64_t n) {
  std::int64_t const step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n; i += step) {
    out[place(to, i)] = x != nullptr ? x[place(from, i)] : T{0};
  }
}

template <class T>
void copy_elements(cudaStream_t stream, const TensorView& out, const TensorView& x) {
  std::int64_t const n = out.numel();
  copy_kernel<T><<<grid_of(pieces(n, kThreads), 8192), kThreads, 0, stream>>>(
      out.ptr<T>(), places_of(out), x.ptr<const T>(), places_of(x), n);
  CUDA_CHECK(cudaGetLastError());
}

template <class To, class From>
__global__ void __launch_bounds__(kThreads)
    convert_kernel(To* out, Places to, const From* x, Places from, std::int64_t n) {
  std::int64_t const step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n; i += step)
    put(out[place(to, i)], get(x[place(from, i)]));
}

template <class To, class From>
void convert(cudaStream_t stream, const TensorView& out, const TensorView& x) {
  std::int64_t const n = out.numel();
  convert_kernel<To, From><<<grid_of(pieces(n, kThreads), 8192), kThreads, 0, stream>>>(
      out.ptr<To>(), places_of(out), x.ptr<const From>(), places_of(x), n);
  CUDA_CHECK(cudaGetLastError());
}

void copy_strided(cudaStream_t stream, const TensorView& out, const TensorView& x) {
  switch (size_of(out.dtype)) {
    case 4:
      return copy_elements<std::uint32_t>(stream, out, x);
    case 2:
      return copy_elements<std::uint16_t>(stream, out, x);
    default:
      return copy_elements<std::uint8_t>(stream, out, x);
  }
}

}  // namespace
}  // namespace cuda

void CudaBackend::zero(TensorView out) {
  if (out.numel() == 0) return;
  if (!out.contiguous()) {
    TensorView none = out;
    none.data = nullptr;
    cuda::copy_strided(stream(), out, none);
    return;
  }
  CUDA_CHECK(cudaMemsetAsync(out.data, 0, static_cast<std::size_t>(out.bytes()), stream()));
}

void CudaBackend::copy(TensorView out, const TensorView& x) {
  COPUS_CHECK(out.dims == x.dims && out.size == x.size, "a copy keeps the sizes");
  if (out.numel() == 0) return;
  if (out.dtype == DType::bf16 && x.dtype == DType::f32)
    return cuda::convert<Bf16, float>(stream(), out, x);
  if (out.dtype == DType::f32 && x.dtype == DType::bf16)
    return cuda::convert<float, Bf16>(stream(), out, x);
  COPUS_CHECK(out.dtype == x.dtype, "a copy converts between f32 and bf16 alone");
  if (!out.contiguous() || !x.contiguous()) {
    cuda::copy_strided(stream(), out, x);
    return;
  }
  CUDA_CHECK(cudaMemcpyAsync(out.data, x.data, static_cast<std::size_t>(out.bytes()),
                             cudaMemcpyDeviceToDevice, stream()));
}

}  // namespace copus
