#include "copus/core/console.h"

#include <fmt/format.h>
#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>

namespace copus {
namespace {

constexpr int kPatience = 1000;  // milliseconds

}  // namespace

// A pipe that has room at all has it for PIPE_BUF bytes. Without a reader it has none: writing
// would end the process.
bool Console::has_room(int wait_milliseconds) const {
  pollfd out{fd_, POLLOUT, 0};
  int found = 0;
  do found = ::poll(&out, 1, wait_milliseconds);
  while (found < 0 && errno == EINTR);
  return found == 1 && (out.revents & POLLOUT) != 0 && (out.revents & (POLLERR | POLLNVAL)) == 0;
}

bool Console::put(std::string_view text, int wait_milliseconds) {
  while (!text.empty()) {
    if (!has_room(wait_milliseconds)) return false;
    ssize_t const written = ::write(fd_, text.data(), std::min<std::size_t>(text.size(), PIPE_BUF));
    if (written < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

bool Console::write(std::string_view text) {
  std::lock_guard const lock(mutex_);
  int const patience = missing_ == 0 ? kPatience : 0;
  bool written = false;
  if (missing_ == 0) {
    written = put(text, patience);
  } else {
    std::string const both =
        fmt::format("warning: {} {} missing here: stderr was not read, or had no room\n{}",
                    missing_, missing_ == 1 ? "line is" : "lines are", text);
    written = put(both, patience);
  }
  missing_ = written ? 0 : missing_ + 1;
  return written;
}

bool Console::write_now(std::string_view text) {
  std::lock_guard const lock(mutex_);
  return put(text, 0);
}

Console& standard_error() {
  static Console console(STDERR_FILENO);
  return console;
}

}  // namespace copus
