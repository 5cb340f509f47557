// stderr, as every part of the program writes to it: whole lines, and nobody waits long for whoever
// reads them. A launcher that ends a job stops reading, a terminal is held with Ctrl-S, a pager is
// left: training goes on, and saves when it is asked to stop.
#pragma once
#include <cstdint>
#include <mutex>
#include <string_view>

namespace copus {

class Console {
 public:
  explicit Console(int fd) : fd_(fd) {}

  // Text with its line's end. False: it was dropped, because nobody read for a second (only the
  // first such line waits so long), the reader is gone, or the disk behind it is full. The next
  // line that is written says how many are missing. Any thread.
  bool write(std::string_view text);
  // What is of the moment: dropped at once where there is no room, and not missed later.
  bool write_now(std::string_view text);

 private:
  bool has_room(int wait_milliseconds) const;
  bool put(std::string_view text, int wait_milliseconds);

  int fd_;
  std::mutex mutex_;
  std::int64_t missing_ = 0;  // lines, since the last one that was written
};

// The process's own, shared by its ranks.
Console& standard_error();

}  // namespace copus
