#include "train/run_directory.h"

#include <fmt/format.h>

#include <filesystem>

#include "copus/core/error.h"

namespace copus {
namespace fs = std::filesystem;

std::string run_directory_problem(const std::string& path, bool resume) {
  if (path.empty()) return "run_dir: is empty; expected a folder to write the run into";
  std::error_code ignored;
  bool const exists = fs::exists(path, ignored);
  if (exists && !fs::is_directory(path, ignored)) {
    return fmt::format("run_dir {}: is a file; expected a folder that does not exist yet", path);
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
