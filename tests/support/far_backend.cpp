#include "support/far_backend.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <new>
#include <vector>

#include "copus/core/error.h"

namespace copus::test {
namespace {

constexpr std::int64_t kPage = 4096;

class FarCopies final : public HostCopies {
 public:
  explicit FarCopies(std::ptrdiff_t distance) : distance_(distance) {}
  std::byte* room(std::int64_t bytes) override {
    if (static_cast<std::size_t>(bytes) > room_.size())
      room_.resize(static_cast<std::size_t>(bytes));
    return room_.data();
  }
  void follow() override {}
  void download(void* host, const void* device, std::int64_t bytes) override {
    std::memcpy(host, static_cast<const std::byte*>(device) + distance_,
                static_cast<std::size_t>(bytes));
  }
  void upload(void* device, const void* host, std::int64_t bytes) override {
    std::memcpy(static_cast<std::byte*>(device) + distance_, host, static_cast<std::size_t>(bytes));
  }
  void wait() override {}

 private:
  std::ptrdiff_t distance_;
  std::vector<std::byte> room_;
};

std::byte* map(int file, std::int64_t bytes, int protection) {
  void* const data = mmap(nullptr, static_cast<std::size_t>(bytes), protection,
                          MAP_SHARED | MAP_NORESERVE, file, 0);
  if (data == MAP_FAILED) throw std::bad_alloc();
  return static_cast<std::byte*>(data);
}

}  // namespace

FarBackend::FarBackend(int threads) : cpu_(make_cpu_backend(threads)) {
  file_ = memfd_create("far memory", MFD_CLOEXEC);
  if (file_ < 0 || ftruncate(file_, kCapacity) != 0) throw IoError("no memory to map twice");
  far_ = map(file_, kCapacity, PROT_NONE);
  near_ = map(file_, kCapacity, PROT_READ | PROT_WRITE);
  distance_ = near_ - far_;
}

FarBackend::~FarBackend() {
  munmap(far_, static_cast<std::size_t>(kCapacity));
  munmap(near_, static_cast<std::size_t>(kCapacity));
  close(file_);
}

// The first gap that is wide enough.
std::byte* FarBackend::allocate(std::int64_t bytes) {
  std::int64_t const size = (bytes + kPage) / kPage * kPage;
  std::lock_guard const lock(mutex_);
  std::int64_t place = 0;
  for (auto const& [begin, length] : held_) {
    if (begin - place >= size) break;
    place = begin + length;
  }
  if (place + size > kCapacity) throw std::bad_alloc();
  held_[place] = size;
  // NaN in any float: nobody may count on memory that comes cleared.
  std::memset(near_ + place, 0xff, static_cast<std::size_t>(size));
  return far_ + place;
}

void FarBackend::deallocate(std::byte* data, std::int64_t) noexcept {
  std::lock_guard const lock(mutex_);
  auto const found = held_.find(data - far_);
  if (found == held_.end()) return;
  fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, found->first, found->second);
  held_.erase(found);
}

// All bits set: a NaN in every type.
void FarBackend::spoil(const TensorView& q, const TensorView& k, const AttentionOptions& options) {
  if (!options.workspace) return;
  COPUS_CHECK(options.workspace.bytes() >=
                  fused_attention_bytes({q.size[0], q.size[2], k.size[2], q.size[1], q.size[3]}),
              "a workspace is what cuDNN's attention may want");
  std::memset(near(options.workspace).data, 0xff,
              static_cast<std::size_t>(options.workspace.bytes()));
  ++spoiled_;
}

std::unique_ptr<HostCopies> FarBackend::host_copies() {
  return std::make_unique<FarCopies>(distance_);
}

}  // namespace copus::test
