#include "copus/data/tokens.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "copus/core/error.h"
#include "data/shard_format.h"
#include "data/xxh3.h"

namespace copus {
namespace {

// Ids are checked in blocks of a fixed size, so that the compiler turns the block into vector code
// without a tail.
constexpr std::int64_t kBlock = 4096;
// Pages are let go after each stretch: checking a shard larger than memory must not look like using
// that memory.
constexpr std::int64_t kStretchBytes = std::int64_t{64} << 20;

template <class Id>
Id largest(const Id* ids) {
  Id result = 0;
  for (std::int64_t i = 0; i < kBlock; ++i) result = std::max(result, ids[i]);
  return result;
}

// The index of the first id outside the vocabulary, or -1.
template <class Id>
std::int64_t first_outside(const Id* ids, std::int64_t count, std::int64_t vocab) {
  auto const outside = [vocab](Id id) { return static_cast<std::int64_t>(id) >= vocab; };
  std::int64_t i = 0;
  while (i + kBlock <= count && !outside(largest(ids + i))) i += kBlock;
  const Id* const found = std::find_if(ids + i, ids + count, outside);
  return found == ids + count ? -1 : found - ids;
}

}  // namespace

struct TokenShard::Map {
  std::string path;
  ShardHeader header;
  std::byte* bytes = nullptr;
  std::int64_t size = 0;    // of the file, bytes
  std::int64_t offset = 0;  // of the ids, bytes

  Map(const std::string& path_in);
  ~Map() {
    if (bytes) munmap(bytes, static_cast<std::size_t>(size));
  }
  Map(const Map&) = delete;
  Map& operator=(const Map&) = delete;

  // Advice is only that: a kernel that does not take it changes nothing.
  void advise(std::int64_t begin, std::int64_t end, int advice) const {
    std::int64_t const page = sysconf(_SC_PAGESIZE);
    begin = begin / page * page;
    if (begin < end) madvise(bytes + begin, static_cast<std::size_t>(end - begin), advice);
  }
  template <class Id>
  const Id* ids() const {
    return reinterpret_cast<const Id*>(bytes + offset);
  }
  template <class Id>
  void check_ids() const;
  void check_sum() const;
};

TokenShard::Map::Map(const std::string& path_in) : path(path_in) {
  int const fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw IoError(fmt::format("{}: cannot open: {}", path, std::strerror(errno)));
  struct stat info {};
  bool const known = fstat(fd, &info) == 0;
  int error = errno;
  if (known && S_ISREG(info.st_mode) && info.st_size > 0) {
    void* const address =
        mmap(nullptr, static_cast<std::size_t>(info.st_size), PROT_READ, MAP_SHARED, fd, 0);
    error = errno;
    if (address != MAP_FAILED) bytes = static_cast<std::byte*>(address);
  }
  close(fd);
  if (!known) throw IoError(fmt::format("{}: cannot stat: {}", path, std::strerror(error)));
  if (!S_ISREG(info.st_mode)) throw ConfigError(fmt::format("{}: not a regular file", path));
  if (info.st_size == 0) throw ConfigError(fmt::format("{}: an empty file, no token shard", path));
  if (!bytes) throw IoError(fmt::format("{}: cannot map: {}", path, std::strerror(error)));
  size = info.st_size;
}

template <class Id>
void TokenShard::Map::check_ids() const {
  std::int64_t const stretch = kStretchBytes / static_cast<std::int64_t>(sizeof(Id));
  for (std::int64_t first = 0; first < header.tokens; first += stretch) {
    std::int64_t const count = std::min(stretch, header.tokens - first);
    std::int64_t const bad = first_outside(ids<Id>() + first, count, header.vocab);
    if (bad >= 0) {
      std::int64_t const at = first + bad;
      throw ConfigError(fmt::format("{}: token {} (byte {}) is {}, outside its vocabulary of {}",
                                    path, at, offset + at * static_cast<std::int64_t>(sizeof(Id)),
                                    ids<Id>()[at], header.vocab));
    }
    std::int64_t const begin = offset + first * static_cast<std::int64_t>(sizeof(Id));
    advise(begin, begin + count * static_cast<std::int64_t>(sizeof(Id)), MADV_DONTNEED);
  }
}

void TokenShard::Map::check_sum() const {
  std::uint64_t const found = XXH3_64bits(bytes + offset, static_cast<std::size_t>(size - offset));
  if (found != header.checksum) {
    throw ConfigError(fmt::format("{}: checksum {:016x}, its header says {:016x}: damaged", path,
                                  found, header.checksum));
  }
}

ShardHeader TokenShard::read_header(const std::string& path) {
  Map const map(path);
  return detail::decode_header({map.bytes, static_cast<std::size_t>(map.size)}, path);
}

TokenShard::TokenShard(std::unique_ptr<Map> map) : map_(std::move(map)) {}
TokenShard::TokenShard(TokenShard&&) noexcept = default;
TokenShard& TokenShard::operator=(TokenShard&&) noexcept = default;
TokenShard::~TokenShard() = default;

TokenShard TokenShard::open(const std::string& path, bool verify_checksum) {
  auto map = std::make_unique<Map>(path);
  map->header = detail::decode_header({map->bytes, static_cast<std::size_t>(map->size)}, path);
  map->offset = detail::ids_offset(static_cast<std::int64_t>(map->header.tokenizer.size()));
  map->advise(0, map->size, MADV_SEQUENTIAL);
  if (map->header.token_bytes == 2) {
    map->check_ids<std::uint16_t>();
  } else {
    map->check_ids<std::uint32_t>();
  }
  if (verify_checksum) map->check_sum();
  // From here on shuffled windows: read-ahead would fetch what nobody asked for.
  map->advise(0, map->size, MADV_RANDOM);
  return TokenShard(std::move(map));
}

const ShardHeader& TokenShard::header() const {
  return map_->header;
}
const std::string& TokenShard::path() const {
  return map_->path;
}

void TokenShard::read(std::int64_t first, std::span<std::int32_t> out) const {
  auto const count = static_cast<std::int64_t>(out.size());
  COPUS_CHECK(first >= 0 && first <= map_->header.tokens && count <= map_->header.tokens - first,
              "a read lies inside its shard");
  std::int64_t const width = map_->header.token_bytes, begin = map_->offset + first * width;
  // One request for the whole window instead of one a page.
  if (count * width > 4096) map_->advise(begin, begin + count * width, MADV_WILLNEED);
  if (width == 2) {
    std::copy_n(map_->ids<std::uint16_t>() + first, count, out.data());
  } else {
    std::transform(map_->ids<std::uint32_t>() + first, map_->ids<std::uint32_t>() + first + count,
                   out.data(), [](std::uint32_t id) { return static_cast<std::int32_t>(id); });
  }
}

}  // namespace copus
