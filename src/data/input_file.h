// Bytes of input files, plain or gzipped, with errors that name the file.
#pragma once
#include <zlib.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace copus::detail {

class InputFile {
 public:
  explicit InputFile(std::string path);  // throws IoError
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  // Appends up to `count` bytes from `offset` on to `out`; fewer only at the end of the file.
  void read(std::int64_t offset, std::int64_t count, std::string& out) const;
  std::int64_t newlines_before(std::int64_t offset) const;

 private:
  std::string path_;
  int fd_ = -1;
};

// The text of a .gz file, member after member. A file that is cut short or damaged is a
// ConfigError.
class GzipReader {
 public:
  explicit GzipReader(const std::string& path);
  ~GzipReader();
  GzipReader(const GzipReader&) = delete;
  GzipReader& operator=(const GzipReader&) = delete;

  // Appends up to `count` bytes to `out`; false at the end.
  bool read(std::size_t count, std::string& out);
  std::int64_t compressed_position() const { return offset_ - stream_.avail_in; }

 private:
  bool refill();
  bool next_member();

  InputFile file_;
  std::int64_t offset_ = 0;  // of what follows compressed_ in the file
  std::string compressed_;
  z_stream stream_{};
  bool inside_ = false, any_ = false;  // a member; a member was finished
};

}  // namespace copus::detail
