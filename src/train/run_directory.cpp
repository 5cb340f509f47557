#include "train/run_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "copus/core/error.h"
#include "state/files.h"
#include "train/line_file.h"
#include "train/metrics_record.h"

namespace copus {
namespace fs = std::filesystem;

namespace {

constexpr int kLooks = 20;  // at the lock, a tenth of a second apart

// Why no folder can be made in `folder`, or nothing. Permissions alone do not say it: /proc and
// full or read-only file systems refuse also root.
std::string cannot_write(const fs::path& folder) {
  std::string probe = (folder / ".copus-probe-XXXXXX").string();
  if (mkdtemp(probe.data()) == nullptr) return std::system_category().message(errno);
  rmdir(probe.c_str());
  return "";
}

// A start that failed, or was killed, may have left its lock, log, temporary files and a record of
// nothing.
bool holds_a_run(const std::string& path) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, ignored)) {
    fs::path const name = entry.path().filename();
    bool const of_a_start = name == ".lock" || name == "log.txt" || name.extension() == ".tmp" ||
                            (name == "metrics.jsonl" && entry.file_size(ignored) == 0);
    if (!of_a_start) return true;
  }
  return false;
}

std::string already_holds(const std::string& path) {
  return fmt::format(
      "run_dir {}: already holds a run; give --resume to go on with it, or another folder with "
      "--run-dir",
      path);
}

}  // namespace

std::string run_directory_problem(const std::string& path, bool resume) {
  if (path.empty()) return "run_dir: is empty; expected a folder to write the run into";
  std::error_code ignored;
  bool const exists = fs::exists(path, ignored);
  if (exists && !fs::is_directory(path, ignored)) {
    return fmt::format("run_dir {}: is a file; expected a folder that does not exist yet", path);
  }
  // The nearest folder above that is there must be one that can be written.
  fs::path above = exists ? fs::path(path) : fs::absolute(path, ignored).parent_path();
  while (!fs::exists(above, ignored) && above.has_relative_path()) above = above.parent_path();
  if (!fs::is_directory(above, ignored))
    return fmt::format("run_dir {}: {} is not a folder", path, above.string());
  if (std::string const why = cannot_write(above); !why.empty())
    return fmt::format("run_dir {}: {} cannot be written ({}); expected a folder where one can",
                       path, above.string(), why);
  if (resume && exists &&
      !(fs::is_regular_file(path + "/config.json", ignored) &&
        fs::is_regular_file(path + "/metrics.jsonl", ignored))) {
    return fmt::format("--resume: run_dir {} holds no run (no config.json and metrics.jsonl)",
                       path);
  }
  if (resume && !exists) {
    return fmt::format(
        "--resume: run_dir {} does not exist; leave --resume out to start a run there", path);
  }
  if (!resume && exists && holds_a_run(path)) return already_holds(path);
  return "";
}

RunLock::~RunLock() {
  if (fd_ >= 0) ::close(fd_);
}

std::string RunLock::take(const RunDirectory& run, bool resume) {
  fd_ = ::open(run.lock().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd_ < 0)
    throw IoError(
        fmt::format("{}: cannot be made: {}", run.lock(), std::system_category().message(errno)));
  // A process that was killed a moment ago may still be giving its memory back.
  bool taken = false;
  for (int look = 0; look < kLooks && !(taken = ::flock(fd_, LOCK_EX | LOCK_NB) == 0); ++look) {
    if (errno != EWOULDBLOCK) break;
    if (look + 1 < kLooks) ::usleep(100'000);
    errno = EWOULDBLOCK;
  }
  if (!taken) {
    if (errno == EWOULDBLOCK) {
      std::string owner(256, '\0');
      ssize_t const got = ::pread(fd_, owner.data(), owner.size(), 0);
      owner.resize(static_cast<std::size_t>(std::max<ssize_t>(0, got)));
      return fmt::format(
          "run_dir {}: another process trains in it ({}); let it end, or take another "
          "folder with --run-dir",
          run.path, owner.empty() ? "it has not said which" : owner);
    }
    warning_ = fmt::format(
        "{}: this file system keeps no locks ({}): nothing stops a second process from training "
        "here",
        run.lock(), std::system_category().message(errno));
    return "";
  }
  // One that started at the same time may have been first, and have ended.
  if (!resume && holds_a_run(run.path)) return already_holds(run.path);
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  std::string const owner = fmt::format("process {} on {}", ::getpid(), host.data());
  // Only for the words above: without them the lock holds all the same.
  [[maybe_unused]] auto const cut = ::ftruncate(fd_, 0);
  [[maybe_unused]] auto const wrote = ::pwrite(fd_, owner.data(), owner.size(), 0);
  return "";
}

void start_record(const RunDirectory& run, Log& log) {
  MetricsRecord const record = read_metrics_record(run.metrics());
  if (record.last_step > 0) {
    std::string const aside = set_metrics_aside(run.metrics());
    log.warn(fmt::format(
        "no checkpoint had been written: starting again with the first step; {} has the {} steps "
        "until now",
        aside, record.steps));
  }
  // There before config.json: a run that is killed while it starts can be resumed, or begun again.
  LineFile const empty(run.metrics());
  sync_directory(run.path);
}

void make_run_directory(const RunDirectory& run) {
  std::error_code error;
  fs::create_directories(run.path, error);
  if (error)
    throw IoError(fmt::format("run_dir {}: cannot make the folder: {}", run.path, error.message()));
}

}  // namespace copus
