#include "data/input_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "copus/core/error.h"

namespace copus::detail {
namespace {
constexpr std::int64_t kReadBytes = std::int64_t{1} << 18;
}

InputFile::InputFile(std::string path)
    : path_(std::move(path)), fd_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (fd_ < 0) throw IoError(fmt::format("{}: cannot open: {}", path_, std::strerror(errno)));
}
InputFile::~InputFile() {
  ::close(fd_);
}

void InputFile::read(std::int64_t offset, std::int64_t count, std::string& out) const {
  std::size_t at = out.size();
  out.resize(at + static_cast<std::size_t>(count));
  while (at < out.size()) {
    ssize_t const got = ::pread(fd_, out.data() + at, out.size() - at, offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw IoError(fmt::format("{}: cannot read: {}", path_, std::strerror(errno)));
    if (got == 0) break;
    at += static_cast<std::size_t>(got);
    offset += got;
  }
  out.resize(at);
}

std::int64_t InputFile::newlines_before(std::int64_t offset) const {
  std::int64_t lines = 0;
  std::string buffer;
  for (std::int64_t at = 0; at < offset; at += kReadBytes) {
    buffer.clear();
    read(at, std::min(kReadBytes, offset - at), buffer);
    lines += std::count(buffer.begin(), buffer.end(), '\n');
  }
  return lines;
}

GzipReader::GzipReader(const std::string& path) : file_(path) {
  // 16 + 15: gzip members only, any window.
  COPUS_CHECK(inflateInit2(&stream_, 16 + 15) == Z_OK, "zlib starts");
}
GzipReader::~GzipReader() {
  inflateEnd(&stream_);
}

bool GzipReader::refill() {
  compressed_.clear();
  file_.read(offset_, kReadBytes, compressed_);
  offset_ += static_cast<std::int64_t>(compressed_.size());
  stream_.next_in = reinterpret_cast<Bytef*>(compressed_.data());
  stream_.avail_in = static_cast<uInt>(compressed_.size());
  return !compressed_.empty();
}

// Goes to the first byte of the next member; false at the end of the file. Zeros between and after
// members are padding.
bool GzipReader::next_member() {
  while (true) {
    if (stream_.avail_in == 0 && !refill()) return false;
    if (!any_ || *stream_.next_in != 0) break;
    ++stream_.next_in;
    --stream_.avail_in;
  }
  inflateReset(&stream_);
  inside_ = true;
  return true;
}

bool GzipReader::read(std::size_t count, std::string& out) {
  std::size_t const start = out.size();
  out.resize(start + count);
  stream_.next_out = reinterpret_cast<Bytef*>(out.data() + start);
  stream_.avail_out = static_cast<uInt>(count);
  while (stream_.avail_out > 0) {
    if (!inside_ && !next_member()) break;
    if (stream_.avail_in == 0 && !refill()) {
      throw ConfigError(
          fmt::format("{}: cut short: the gzip data ends in the middle", file_.path()));
    }
    int const result = inflate(&stream_, Z_NO_FLUSH);
    if (result == Z_STREAM_END) {
      inside_ = false;
      any_ = true;
    } else if (result != Z_OK) {
      throw ConfigError(fmt::format("{}: damaged or not gzip data near byte {}: {}", file_.path(),
                                    compressed_position(), stream_.msg ? stream_.msg : "error"));
    }
  }
  out.resize(out.size() - stream_.avail_out);
  return out.size() > start;
}

}  // namespace copus::detail
