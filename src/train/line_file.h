// Appends lines to a file, in order and each of them whole, whatever the disk does meanwhile.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

namespace copus {

class LineFile {
 public:
  static constexpr std::size_t kMostWaitingBytes = std::size_t{16} << 20;

  // Throws IoError where the file cannot be opened.
  explicit LineFile(const std::string& path, std::size_t most_waiting = kMostWaitingBytes);
  ~LineFile();  // tries once more
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;

  // The line gets its end. What cannot be written now waits in memory for the next call, up to
  // `most_waiting` bytes; lines beyond are dropped, and counted.
  void append(std::string line);
  // Writes what waits and has the disk keep all that was written. Returns what failed, or "".
  std::string sync();

  const std::string& problem() const { return problem_; }  // why lines wait; "": none does
  std::size_t waiting() const { return lines_.size(); }
  std::int64_t dropped() const { return dropped_; }  // since the file was opened

 private:
  void write_waiting();

  std::string path_;
  std::size_t most_waiting_;
  int fd_ = -1;
  std::deque<std::string> lines_;  // what is not written yet, the first perhaps in part
  std::size_t waiting_bytes_ = 0;
  std::int64_t dropped_ = 0;
  std::string problem_;
};

}  // namespace copus
