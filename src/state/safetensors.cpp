#include "copus/state/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "copus/core/error.h"
#include "copus/core/math.h"
#include "state/files.h"
#include "state/safetensors_header.h"

namespace copus {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian");

constexpr std::int64_t kLengthBytes = 8;  // the header's length, before the header

// Every f16 is an f32: subnormals become normal, infinities and NaN payloads stay.
float f32_from_f16(std::uint16_t bits) {
  std::uint32_t const sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  std::uint32_t const exponent = (bits >> 10) & 0x1fu;
  std::uint32_t const fraction = bits & 0x3ffu;
  if (exponent == 0) {
    float const magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  std::uint32_t const wide = exponent == 31 ? 255u : exponent - 15u + 127u;
  return std::bit_cast<float>(sign | (wide << 23) | (fraction << 13));
}

// `bytes` bytes from `offset` on. By pread and not through a mapping: mapped pages would count as
// this process's memory, and a file cut short while it is read would be a signal, not an error.
void read_at(int fd, const std::string& path, std::int64_t offset, void* to, std::size_t bytes) {
  auto* at = static_cast<char*>(to);
  while (bytes > 0) {
    ssize_t const got = ::pread(fd, at, bytes, offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_io_error("cannot read", path);
    if (got == 0) throw IoError(fmt::format("{}: became shorter while it was read", path));
    at += got;
    offset += got;
    bytes -= static_cast<std::size_t>(got);
  }
}

template <class Convert>
void read_halves(int fd, const std::string& path, std::int64_t offset, std::span<float> out,
                 Convert convert) {
  std::array<std::uint16_t, 8192> bits;
  while (!out.empty()) {
    std::size_t const count = std::min(out.size(), bits.size());
    read_at(fd, path, offset, bits.data(), 2 * count);
    for (std::size_t i = 0; i < count; ++i) out[i] = convert(bits[i]);
    out = out.subspan(count);
    offset += static_cast<std::int64_t>(2 * count);
  }
}

}  // namespace

std::int64_t TensorEntry::numel() const {
  std::int64_t n = 1;
  for (std::int64_t const s : shape) n *= s;
  return n;
}

struct SafetensorsFile::Opened {
  std::string path;
  SafetensorsHeader header;
  int fd = -1;
  std::int64_t data_begin = 0;

  ~Opened() {
    if (fd >= 0) ::close(fd);
  }
};

SafetensorsFile::SafetensorsFile(std::unique_ptr<Opened> file) : file_(std::move(file)) {}
SafetensorsFile::~SafetensorsFile() = default;
SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;

SafetensorsFile SafetensorsFile::open(const std::string& path) {
  auto file = std::make_unique<Opened>();
  file->path = path;
  // O_NONBLOCK: a pipe of that name is refused below, not waited for.
  file->fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file->fd < 0) throw_io_error("cannot open", path);
  struct stat info = {};
  if (::fstat(file->fd, &info) != 0 || !S_ISREG(info.st_mode))
    throw ConfigError(fmt::format("{}: not a regular file; expected a safetensors file", path));
  if (info.st_size < kLengthBytes) {
    throw ConfigError(
        fmt::format("{}: not a valid safetensors file: {} bytes, shorter than its length field",
                    path, info.st_size));
  }
  std::uint64_t header_bytes = 0;
  read_at(file->fd, path, 0, &header_bytes, sizeof header_bytes);
  std::int64_t const after_length = info.st_size - kLengthBytes;
  if (header_bytes > static_cast<std::uint64_t>(after_length) ||
      header_bytes > static_cast<std::uint64_t>(kMaxSafetensorsHeaderBytes)) {
    throw ConfigError(fmt::format(
        "{}: not a valid safetensors file: a header of {} bytes, where the file leaves room for {} "
        "and at most {} are accepted",
        path, header_bytes, after_length, kMaxSafetensorsHeaderBytes));
  }
  auto const length = static_cast<std::int64_t>(header_bytes);
  file->data_begin = kLengthBytes + length;
  std::string text(header_bytes, '\0');
  read_at(file->fd, path, kLengthBytes, text.data(), text.size());
  file->header = parse_safetensors_header(text, after_length - length, path);
  return SafetensorsFile(std::move(file));
}

const std::map<std::string, TensorEntry>& SafetensorsFile::tensors() const {
  return file_->header.tensors;
}
const std::map<std::string, std::string>& SafetensorsFile::metadata() const {
  return file_->header.metadata;
}
const std::string& SafetensorsFile::path() const {
  return file_->path;
}

void SafetensorsFile::read_f32(const std::string& name, std::int64_t first,
                               std::span<float> out) const {
  auto const found = file_->header.tensors.find(name);
  if (found == file_->header.tensors.end()) {
    throw ConfigError(fmt::format("{}: has no tensor \"{}\"", file_->path, name));
  }
  const TensorEntry& entry = found->second;
  auto const count = static_cast<std::int64_t>(out.size());
  COPUS_CHECK(first >= 0 && count <= entry.numel() - first,
              fmt::format("a read of \"{}\" stays inside it", name));
  if (out.empty()) return;
  std::int64_t const offset =
      file_->data_begin + entry.begin + first * safetensors_element_bytes(entry.dtype);
  if (entry.dtype == "F32") {
    read_at(file_->fd, file_->path, offset, out.data(), out.size_bytes());
  } else if (entry.dtype == "BF16") {
    read_halves(file_->fd, file_->path, offset, out, math::from_bf16);
  } else if (entry.dtype == "F16") {
    read_halves(file_->fd, file_->path, offset, out, f32_from_f16);
  } else {
    throw ConfigError(fmt::format("{}: tensor \"{}\" is {}; F32, BF16 and F16 can be read",
                                  file_->path, name, entry.dtype));
  }
}

}  // namespace copus
