#include "train/line_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "copus/core/error.h"

namespace copus {
namespace {

std::string reason() {
  return std::system_category().message(errno);
}

}  // namespace

LineFile::LineFile(const std::string& path, std::size_t most_waiting)
    : path_(path),
      most_waiting_(most_waiting),
      fd_(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  if (fd_ < 0) throw IoError(fmt::format("{}: cannot open for writing: {}", path, reason()));
}

LineFile::~LineFile() {
  write_waiting();
  ::close(fd_);
}

void LineFile::append(std::string line) {
  line += '\n';
  // What waited comes first, and may make room.
  write_waiting();
  if (waiting_bytes_ + line.size() > most_waiting_ && !lines_.empty()) {
    ++dropped_;
    return;
  }
  waiting_bytes_ += line.size();
  lines_.push_back(std::move(line));
  if (problem_.empty()) write_waiting();
}

void LineFile::write_waiting() {
  problem_.clear();
  while (!lines_.empty()) {
    std::string& line = lines_.front();
    ssize_t const written = ::write(fd_, line.data(), line.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      problem_ = fmt::format("{}: cannot write: {}", path_, reason());
      return;
    }
    // A disk takes a part of a line when it fills up with it.
    waiting_bytes_ -= static_cast<std::size_t>(written);
    line.erase(0, static_cast<std::size_t>(written));
    if (line.empty()) lines_.pop_front();
  }
}

std::string LineFile::sync() {
  write_waiting();
  if (!problem_.empty()) return problem_;
  // EINVAL and EROFS: a pipe or device that has nothing to sync.
  if (::fsync(fd_) != 0 && errno != EINVAL && errno != EROFS)
    return fmt::format("{}: cannot sync: {}", path_, reason());
  return "";
}

}  // namespace copus
