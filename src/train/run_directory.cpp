#include "train/run_directory.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "copus/core/error.h"

namespace copus {
namespace fs = std::filesystem;

namespace {

// Why no folder can be made in `folder`, or nothing. Permissions alone do not say it: /proc and
// full or read-only file systems refuse also root.
std::string cannot_write(const fs::path& folder) {
  std::string probe = (folder / ".copus-probe-XXXXXX").string();
  if (mkdtemp(probe.data()) == nullptr) return std::system_category().message(errno);
  rmdir(probe.c_str());
  return "";
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
      !(fs::exists(path + "/config.json", ignored) &&
        fs::exists(path + "/metrics.jsonl", ignored))) {
    return fmt::format("--resume: run_dir {} holds no run (no config.json and metrics.jsonl)",
                       path);
  }
  if (resume && !exists) {
    return fmt::format(
        "--resume: run_dir {} does not exist; leave --resume out to start a run there", path);
  }
  if (!resume && exists && !fs::is_empty(path, ignored)) {
    return fmt::format(
        "run_dir {}: already holds a run; give --resume to go on with it, or another folder with "
        "--run-dir",
        path);
  }
  return "";
}

void make_run_directory(const RunDirectory& run) {
  std::error_code error;
  fs::create_directories(run.path, error);
  if (error)
    throw IoError(fmt::format("run_dir {}: cannot make the folder: {}", run.path, error.message()));
}

}  // namespace copus
