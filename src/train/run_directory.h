// The folder a run writes: refused or made, and the names inside it.
#pragma once
#include <string>

#include "copus/core/log.h"

namespace copus {

struct RunDirectory {
  std::string path;

  std::string config() const { return path + "/config.json"; }
  std::string metrics() const { return path + "/metrics.jsonl"; }
  std::string log() const { return path + "/log.txt"; }
  std::string lock() const { return path + "/.lock"; }
  std::string checkpoints() const { return path + "/checkpoints"; }
};

// What is wrong with starting (or resuming) a run in `path`, or an empty string. Leaves nothing
// behind.
std::string run_directory_problem(const std::string& path, bool resume);
// Makes the folder. Throws IoError.
void make_run_directory(const RunDirectory& run);
// For a run that begins with its first step, in a folder that may hold steps which no checkpoint
// has kept: their metrics.jsonl is set aside, and an empty one is there. Throws IoError.
void start_record(const RunDirectory& run, Log& log);

// Keeps a second process out of a run directory for as long as this one lives, however it ends.
class RunLock {
 public:
  RunLock() = default;
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  // The folder is there. Returns who has it, in a sentence, or an empty string. Throws IoError
  // where no file can be made.
  std::string take(const RunDirectory& run, bool resume);
  // Of a file system that keeps no locks; else empty.
  const std::string& warning() const { return warning_; }

 private:
  int fd_ = -1;
  std::string warning_;
};

}  // namespace copus
