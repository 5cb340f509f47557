// Files written so that they are either whole on the disk or reported as failed: append, hash,
// fsync, rename.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace copus {

// What the checkpoint's state.json says of each file.
struct FileSum {
  std::int64_t bytes = 0;
  std::uint64_t hash = 0;  // XXH3, 64 bits
  bool operator==(const FileSum&) const = default;
};

// One new file, written front to back through a fixed buffer.
class FileSink {
 public:
  explicit FileSink(const std::string& path);  // replaces a file of that name; throws IoError
  ~FileSink();                                 // closes; an unfinished file stays short
  FileSink(const FileSink&) = delete;
  FileSink& operator=(const FileSink&) = delete;

  void append(std::span<const std::byte> bytes);
  void append(std::string_view text) { append(std::as_bytes(std::span(text))); }
  FileSum finish();  // flushes, fsyncs, closes
  std::int64_t bytes() const { return bytes_; }
  const std::string& path() const { return path_; }

 private:
  struct Hash;
  void write_out(std::span<const std::byte> bytes);

  std::string path_;
  int fd_ = -1;
  std::int64_t bytes_ = 0;
  std::vector<std::byte> buffer_;
  std::unique_ptr<Hash> hash_;
};

// "cannot open x: No such file or directory", from the current errno.
[[noreturn]] void throw_io_error(const std::string& what, const std::string& path);

FileSum sum_of_file(const std::string& path);  // reads it all; throws IoError
std::uint64_t hash_of(std::string_view text);
std::string to_hex(std::uint64_t hash);

// A small file whole; refused (ConfigError) when larger than `max_bytes`.
std::string read_text_file(const std::string& path, std::int64_t max_bytes);
// The same, refused also when its brackets nest too deep to be JSON of ours: safe to parse.
std::string read_json_file(const std::string& path, std::int64_t max_bytes);
FileSum write_text_file(const std::string& path, std::string_view text);
FileSum copy_file(const std::string& from, const std::string& to);
// The file has the old text or the new one, whole, whatever happens meanwhile. Throws IoError.
void replace_text_file(const std::string& path, std::string_view text);

// Whether a name that was read somewhere is one of a file beside it, and no path.
bool is_file_name(std::string_view name);

// Makes the names in a directory (creations, renames) survive a power cut.
void sync_directory(const std::string& path);
void rename_path(const std::string& from, const std::string& to);

// Removes a directory tree on the way out unless kept: a failed save leaves nothing behind.
class TemporaryTree {
 public:
  enum class Name { ours, unused };
  // Creates it, empty. `ours`: that name is no one else's, and what a killed run left there goes.
  // `unused`: with something appended that makes the name new.
  explicit TemporaryTree(std::string path, Name name = Name::ours);
  ~TemporaryTree();
  TemporaryTree(const TemporaryTree&) = delete;
  TemporaryTree& operator=(const TemporaryTree&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  void keep() { kept_ = true; }  // it has been renamed

 private:
  std::string path_;
  bool kept_ = false;
};

}  // namespace copus
