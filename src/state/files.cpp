#include "state/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "copus/core/error.h"
#include "copus/core/json_text.h"

// Scalar: several GB/s, more than any disk, and the same code on every machine (GCC 12's AVX-512
// headers do not compile without warnings here).
#define XXH_INLINE_ALL
#define XXH_VECTOR 0
#include <xxhash.h>

namespace copus {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

// A descriptor closed on every way out.
struct Descriptor {
  int fd;
  ~Descriptor() { ::close(fd); }
};

class RunningHash {
 public:
  RunningHash() : state_(XXH3_createState()) {
    if (state_ == nullptr) throw std::bad_alloc();
    XXH3_64bits_reset(state_);
  }
  ~RunningHash() { XXH3_freeState(state_); }
  RunningHash(const RunningHash&) = delete;
  RunningHash& operator=(const RunningHash&) = delete;

  void add(std::span<const std::byte> bytes) {
    XXH3_64bits_update(state_, bytes.data(), bytes.size());
  }
  std::uint64_t value() const { return XXH3_64bits_digest(state_); }

 private:
  XXH3_state_t* state_;
};

// Reads a file front to back; `use` sees it in blocks.
template <class Use>
void for_each_block(const std::string& path, Use use) {
  int const fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw_io_error("cannot open", path);
  Descriptor const closer{fd};
  // Small files are read often, and a new megabyte costs more than they do.
  struct stat info = {};
  bool const small = ::fstat(fd, &info) == 0 && info.st_size < static_cast<off_t>(kBufferBytes);
  std::vector<std::byte> block(small ? static_cast<std::size_t>(info.st_size) + 4096
                                     : kBufferBytes);
  while (true) {
    ssize_t const n = ::read(fd, block.data(), block.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_io_error("cannot read", path);
    if (n == 0) return;
    use(std::span<const std::byte>(block.data(), static_cast<std::size_t>(n)));
  }
}

}  // namespace

void throw_io_error(const std::string& what, const std::string& path) {
  int const code = errno;
  throw IoError(fmt::format("{} {}: {}", what, path, std::system_category().message(code)));
}

struct FileSink::Hash {
  RunningHash running;
};

FileSink::FileSink(const std::string& path) : path_(path), hash_(std::make_unique<Hash>()) {
  buffer_.reserve(kBufferBytes);
  fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd_ < 0) throw_io_error("cannot create", path);
}

FileSink::~FileSink() {
  if (fd_ >= 0) ::close(fd_);
}

void FileSink::append(std::span<const std::byte> bytes) {
  COPUS_CHECK(fd_ >= 0, "nothing is appended to a finished file");
  if (bytes.empty()) return;
  hash_->running.add(bytes);
  bytes_ += static_cast<std::int64_t>(bytes.size());
  if (buffer_.size() + bytes.size() > kBufferBytes) {
    write_out(buffer_);
    buffer_.clear();
  }
  if (bytes.size() >= kBufferBytes) {
    write_out(bytes);
  } else {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  }
}

void FileSink::write_out(std::span<const std::byte> bytes) {
  // Linux writes at most 2 GiB a call and may write less (a nearly full disk, a signal).
  while (!bytes.empty()) {
    std::size_t const ask = std::min(bytes.size(), std::size_t{1} << 30);
    ssize_t const n = ::write(fd_, bytes.data(), ask);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_io_error("cannot write", path_);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
}

FileSum FileSink::finish() {
  COPUS_CHECK(fd_ >= 0, "a file is finished once");
  write_out(buffer_);
  buffer_.clear();
  // EINVAL and EROFS: a pipe or device that has nothing to sync.
  if (::fsync(fd_) != 0 && errno != EINVAL && errno != EROFS) throw_io_error("cannot sync", path_);
  int const fd = fd_;
  fd_ = -1;
  if (::close(fd) != 0) throw_io_error("cannot close", path_);
  return {bytes_, hash_->running.value()};
}

FileSum sum_of_file(const std::string& path) {
  RunningHash hash;
  FileSum sum;
  for_each_block(path, [&](std::span<const std::byte> block) {
    hash.add(block);
    sum.bytes += static_cast<std::int64_t>(block.size());
  });
  sum.hash = hash.value();
  return sum;
}

std::uint64_t hash_of(std::string_view text) {
  return XXH3_64bits(text.data(), text.size());
}

std::string to_hex(std::uint64_t hash) {
  return fmt::format("{:016x}", hash);
}

std::string read_text_file(const std::string& path, std::int64_t max_bytes) {
  std::string text;
  for_each_block(path, [&](std::span<const std::byte> block) {
    if (static_cast<std::int64_t>(text.size() + block.size()) > max_bytes) {
      throw ConfigError(
          fmt::format("{}: larger than the {} bytes such a file may have", path, max_bytes));
    }
    text.append(reinterpret_cast<const char*>(block.data()), block.size());
  });
  return text;
}

std::string read_json_file(const std::string& path, std::int64_t max_bytes) {
  std::string text = read_text_file(path, max_bytes);
  if (nests_deeper(text)) {
    throw ConfigError(
        fmt::format("{}: damaged: brackets nest deeper than {} levels", path, kDeepestJson));
  }
  return text;
}

FileSum write_text_file(const std::string& path, std::string_view text) {
  FileSink sink(path);
  sink.append(text);
  return sink.finish();
}

void replace_text_file(const std::string& path, std::string_view text) {
  std::string const temporary = path + ".tmp";
  try {
    write_text_file(temporary, text);
    rename_path(temporary, path);
  } catch (const IoError&) {
    ::unlink(temporary.c_str());
    throw;
  }
  fs::path const folder = fs::path(path).parent_path();
  sync_directory(folder.empty() ? "." : folder.string());
}

FileSum copy_file(const std::string& from, const std::string& to) {
  FileSink sink(to);
  for_each_block(from, [&](std::span<const std::byte> block) { sink.append(block); });
  return sink.finish();
}

void sync_directory(const std::string& path) {
  int const fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) throw_io_error("cannot open", path);
  Descriptor const closer{fd};
  // Some network file systems cannot sync a directory; there the rename itself is durable.
  if (::fsync(fd) != 0 && errno != EINVAL) throw_io_error("cannot sync", path);
}

bool is_file_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\0", 2)) == std::string_view::npos;
}

void rename_path(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) {
    throw_io_error(fmt::format("cannot rename {} to", from), to);
  }
}

TemporaryTree::TemporaryTree(std::string path, Name name) : path_(std::move(path)) {
  if (name == Name::unused) {
    std::string const base = path_;
    for (int n = 0;; ++n) {
      path_ = fmt::format("{}-{}-{}", base, ::getpid(), n);
      if (::mkdir(path_.c_str(), 0777) == 0) return;
      if (errno != EEXIST) throw_io_error("cannot create", path_);
    }
  }
  std::error_code error;
  fs::remove_all(path_, error);  // a killed run's leftover
  if (::mkdir(path_.c_str(), 0777) != 0) throw_io_error("cannot create", path_);
}

TemporaryTree::~TemporaryTree() {
  std::error_code error;  // a destructor never throws; a leftover is removed by the next save
  if (!kept_) fs::remove_all(path_, error);
}

}  // namespace copus
