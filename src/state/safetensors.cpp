#include "copus/state/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

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

// The data may start at any byte (another writer need not have padded the header).
template <class Convert>
void convert_halves(const std::byte* from, std::span<float> out, Convert convert) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, from + 2 * i, 2);
    out[i] = convert(bits);
  }
}

}  // namespace

std::int64_t TensorEntry::numel() const {
  std::int64_t n = 1;
  for (std::int64_t const s : shape) n *= s;
  return n;
}

struct SafetensorsFile::Map {
  std::string path;
  SafetensorsHeader header;
  std::byte* bytes = nullptr;
  std::size_t size = 0;
  std::int64_t data_begin = 0;

  ~Map() {
    if (bytes != nullptr) ::munmap(bytes, size);
  }
};

SafetensorsFile::SafetensorsFile(std::unique_ptr<Map> map) : map_(std::move(map)) {}
SafetensorsFile::~SafetensorsFile() = default;
SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;

SafetensorsFile SafetensorsFile::open(const std::string& path) {
  auto map = std::make_unique<Map>();
  map->path = path;
  int const fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw_io_error("cannot open", path);
  struct stat info = {};
  bool const known = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  if (known && info.st_size >= kLengthBytes) {
    map->size = static_cast<std::size_t>(info.st_size);
    void* const mapped = ::mmap(nullptr, map->size, PROT_READ, MAP_PRIVATE, fd, 0);
    int const code = errno;
    ::close(fd);
    errno = code;
    if (mapped == MAP_FAILED) throw_io_error("cannot map", path);
    map->bytes = static_cast<std::byte*>(mapped);
  } else {
    ::close(fd);
    if (!known) throw IoError(fmt::format("cannot read {}: not a regular file", path));
    throw ConfigError(
        fmt::format("{}: not a valid safetensors file: {} bytes, shorter than its length field",
                    path, info.st_size));
  }

  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, map->bytes, sizeof header_bytes);
  auto const after_length = static_cast<std::int64_t>(map->size) - kLengthBytes;
  if (header_bytes > static_cast<std::uint64_t>(after_length) ||
      header_bytes > static_cast<std::uint64_t>(kMaxSafetensorsHeaderBytes)) {
    throw ConfigError(fmt::format(
        "{}: not a valid safetensors file: a header of {} bytes, where the file leaves room for {} "
        "and at most {} are accepted",
        path, header_bytes, after_length, kMaxSafetensorsHeaderBytes));
  }
  auto const length = static_cast<std::int64_t>(header_bytes);
  map->data_begin = kLengthBytes + length;
  map->header = parse_safetensors_header(
      {reinterpret_cast<const char*>(map->bytes) + kLengthBytes, static_cast<std::size_t>(length)},
      after_length - length, path);
  return SafetensorsFile(std::move(map));
}

const std::map<std::string, TensorEntry>& SafetensorsFile::tensors() const {
  return map_->header.tensors;
}
const std::map<std::string, std::string>& SafetensorsFile::metadata() const {
  return map_->header.metadata;
}
const std::string& SafetensorsFile::path() const {
  return map_->path;
}

void SafetensorsFile::read_f32(const std::string& name, std::int64_t first,
                               std::span<float> out) const {
  auto const found = map_->header.tensors.find(name);
  if (found == map_->header.tensors.end()) {
    throw ConfigError(fmt::format("{}: has no tensor \"{}\"", map_->path, name));
  }
  const TensorEntry& entry = found->second;
  auto const count = static_cast<std::int64_t>(out.size());
  COPUS_CHECK(first >= 0 && count <= entry.numel() - first,
              fmt::format("a read of \"{}\" stays inside it", name));
  if (out.empty()) return;
  const std::byte* const from =
      map_->bytes + map_->data_begin + entry.begin + first * safetensors_element_bytes(entry.dtype);
  if (entry.dtype == "F32") {
    std::memcpy(out.data(), from, out.size_bytes());
  } else if (entry.dtype == "BF16") {
    convert_halves(from, out, math::from_bf16);
  } else if (entry.dtype == "F16") {
    convert_halves(from, out, f32_from_f16);
  } else {
    throw ConfigError(fmt::format("{}: tensor \"{}\" is {}; F32, BF16 and F16 can be read",
                                  map_->path, name, entry.dtype));
  }
}

}  // namespace copus
