// Preloaded into the binary: notes, in the file that COPUS_IO_TRACE names, what is synced, renamed
// and read, a line a call and in the order of the calls.
//   sync PATH BYTES     as long as the file was then
//   rename FROM TO
//   read PATH BYTES     by read(2); pread(2) is not noted
//   lock PATH           a lock of the whole file that was given
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace {

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

void note(const std::string& line) {
  const char* const path = std::getenv("COPUS_IO_TRACE");
  if (path == nullptr) return;
  int const fd = ::open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0) return;
  std::string const text = line + "\n";
  [[maybe_unused]] auto const written = ::write(fd, text.data(), text.size());
  ::close(fd);
}

std::string path_of(int fd) {
  char path[4096];
  ssize_t const n = ::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof path);
  return n > 0 ? std::string(path, static_cast<std::size_t>(n)) : "?";
}

void note_sync(int fd) {
  struct stat info = {};
  ::fstat(fd, &info);
  note("sync " + path_of(fd) + " " + std::to_string(info.st_size));
}

}  // namespace

extern "C" {

int fsync(int fd) {
  int const result = next<int(int)>("fsync")(fd);
  if (result == 0) note_sync(fd);
  return result;
}

int fdatasync(int fd) {
  int const result = next<int(int)>("fdatasync")(fd);
  if (result == 0) note_sync(fd);
  return result;
}

int flock(int fd, int operation) noexcept {
  int const result = next<int(int, int)>("flock")(fd, operation);
  if (result == 0) note("lock " + path_of(fd));
  return result;
}

int rename(const char* from, const char* to) noexcept {
  note("rename " + std::string(from) + " " + to);
  return next<int(const char*, const char*)>("rename")(from, to);
}

ssize_t read(int fd, void* to, std::size_t bytes) {
  ssize_t const result = next<ssize_t(int, void*, std::size_t)>("read")(fd, to, bytes);
  std::string const path = path_of(fd);
  if (result > 0 && path.ends_with(".safetensors"))
    note("read " + path + " " + std::to_string(result));
  return result;
}
}
