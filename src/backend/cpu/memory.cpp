#include <fmt/core.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

#include "backend/compute_type.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/rows.h"
#include "copus/backend/machine.h"
#include "copus/core/error.h"

namespace copus {
namespace {

constexpr std::int64_t kAlignment = 64;
constexpr std::int64_t kHugePage = 2 << 20;

class OutOfMemory : public std::bad_alloc {
 public:
  explicit OutOfMemory(std::int64_t bytes)
      : message_(fmt::format("cannot allocate {} bytes ({:.2f} GiB) of memory", bytes,
                             static_cast<double>(bytes) / (1 << 30))) {}
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  std::string message_;
};

std::int64_t round_up(std::int64_t bytes, std::int64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// Big blocks are mapped on whole huge pages: first touches cost a seventh, and nothing goes back to
// the system until the block is freed.
bool is_mapped(std::int64_t bytes) {
  return bytes >= kHugePage;
}

std::byte* map_huge(std::int64_t bytes) {
  std::int64_t const size = round_up(bytes, kHugePage);
  void* const raw = mmap(nullptr, static_cast<std::size_t>(size + kHugePage),
                         PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) throw OutOfMemory(bytes);
  auto* const begin = static_cast<std::byte*>(raw);
  std::int64_t const skip =
      round_up(static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(begin)), kHugePage) -
      static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(begin));
  if (skip > 0) munmap(begin, static_cast<std::size_t>(skip));
  std::int64_t const rest = kHugePage - skip;
  if (rest > 0) munmap(begin + skip + size, static_cast<std::size_t>(rest));
  // A hint: where huge pages are off, plain pages serve as well.
  madvise(begin + skip, static_cast<std::size_t>(size), MADV_HUGEPAGE);
  return begin + skip;
}

// Copies dimension by dimension; the innermost contiguous run is one memcpy.
void copy_strided(std::byte* out, const std::byte* x, const TensorView& to, const TensorView& from,
                  int dim) {
  auto const d = static_cast<std::size_t>(dim);
  std::int64_t const element = size_of(to.dtype);
  if (dim == to.dims) {
    std::memcpy(out, x, static_cast<std::size_t>(element));
    return;
  }
  if (dim == to.dims - 1 && to.stride[d] == 1 && from.stride[d] == 1) {
    std::memcpy(out, x, static_cast<std::size_t>(to.size[d] * element));
    return;
  }
  for (std::int64_t i = 0; i < to.size[d]; ++i) {
    copy_strided(out + i * to.stride[d] * element, x + i * from.stride[d] * element, to, from,
                 dim + 1);
  }
}

template <class To, class From>
void convert(int threads, const TensorView& out, const TensorView& x) {
  RowsOf<To> const to = rows_of<To>(out);
  RowsOf<From> const from = rows_of<From>(x);
  for_elements(threads, to, [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
    To* const y = to.row(row);
    const From* const v = from.row(row);
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) put(y[i], get(v[i]));
  });
}

}  // namespace

std::byte* CpuBackend::allocate(std::int64_t bytes) {
  COPUS_CHECK(bytes >= 0, "a size is not negative");
  if (bytes > (std::int64_t{1} << 60)) throw OutOfMemory(bytes);
  if (is_mapped(bytes)) return map_huge(bytes);
  std::int64_t const size = round_up(bytes > 0 ? bytes : 1, kAlignment);
  void* const data = std::aligned_alloc(kAlignment, static_cast<std::size_t>(size));
  if (data == nullptr) throw OutOfMemory(bytes);
  return static_cast<std::byte*>(data);
}

void CpuBackend::deallocate(std::byte* data, std::int64_t bytes) noexcept {
  if (data == nullptr) return;
  if (is_mapped(bytes)) {
    munmap(data, static_cast<std::size_t>(round_up(bytes, kHugePage)));
  } else {
    std::free(data);
  }
}

void CpuBackend::zero(TensorView out) {
  if (out.numel() == 0) return;
  if (!out.contiguous()) {
    for (std::int64_t i = 0; i < out.size[0]; ++i) {
      TensorView part = out.slice(0, i, 1);
      // A single strided element is contiguous, so this ends.
      part.dims = out.dims - 1;
      for (int d = 0; d < part.dims; ++d) {
        part.size[static_cast<std::size_t>(d)] = out.size[static_cast<std::size_t>(d + 1)];
        part.stride[static_cast<std::size_t>(d)] = out.stride[static_cast<std::size_t>(d + 1)];
      }
      zero(part);
    }
    return;
  }
  constexpr std::int64_t kPiece = 1 << 18;
  auto* const data = out.ptr<std::byte>();
  std::int64_t const bytes = out.bytes();
  parallel_for(threads_, (bytes + kPiece - 1) / kPiece, [&](int, std::int64_t i) {
    std::int64_t const begin = i * kPiece;
    std::memset(data + begin, 0, static_cast<std::size_t>(std::min(kPiece, bytes - begin)));
  });
}

void CpuBackend::copy(TensorView out, const TensorView& x) {
  COPUS_CHECK(out.dims == x.dims && out.size == x.size, "a copy keeps the sizes");
  if (out.numel() == 0) return;
  if (out.dtype == DType::bf16 && x.dtype == DType::f32) {
    convert<Bf16, float>(threads_, out, x);
    return;
  }
  if (out.dtype == DType::f32 && x.dtype == DType::bf16) {
    convert<float, Bf16>(threads_, out, x);
    return;
  }
  COPUS_CHECK(out.dtype == x.dtype, "a copy converts between f32 and bf16 alone");
  if (!out.contiguous() || !x.contiguous()) {
    if (out.dims < 2) {
      copy_strided(out.ptr<std::byte>(), x.ptr<std::byte>(), out, x, 0);
      return;
    }
    std::int64_t const element = size_of(out.dtype);
    parallel_for(threads_, out.size[0], [&](int, std::int64_t i) {
      copy_strided(out.ptr<std::byte>() + i * out.stride[0] * element,
                   x.ptr<std::byte>() + i * x.stride[0] * element, out, x, 1);
    });
    return;
  }
  constexpr std::int64_t kPiece = 1 << 18;
  std::int64_t const bytes = out.bytes();
  parallel_for(threads_, (bytes + kPiece - 1) / kPiece, [&](int, std::int64_t i) {
    std::int64_t const begin = i * kPiece;
    std::memcpy(out.ptr<std::byte>() + begin, x.ptr<std::byte>() + begin,
                static_cast<std::size_t>(std::min(kPiece, bytes - begin)));
  });
}

void CpuBackend::upload(TensorView out, const void* host) {
  COPUS_CHECK(out.contiguous(), "an upload fills a contiguous tensor");
  if (out.numel() != 0) std::memcpy(out.data, host, static_cast<std::size_t>(out.bytes()));
}

void CpuBackend::download(void* host, const TensorView& x) {
  COPUS_CHECK(x.contiguous(), "a download reads a contiguous tensor");
  if (x.numel() != 0) std::memcpy(host, x.data, static_cast<std::size_t>(x.bytes()));
}

std::int64_t CpuBackend::free_bytes() {
  return available_memory_bytes();
}

}  // namespace copus
