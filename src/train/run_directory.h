// The folder a run writes: refused or made, and the names inside it.
#pragma once
#include <string>

namespace copus {

struct RunDirectory {
  std::string path;

  std::string config() const { return path + "/config.json"; }
  std::string metrics() const { return path + "/metrics.jsonl"; }
  std::string log() const { return path + "/log.txt"; }
  std::string checkpoints() const { return path + "/checkpoints"; }
};

// What is wrong with starting (or resuming) a run in `path`, or an empty string. Leaves nothing
// behind.
std::string run_directory_problem(const std::string& path, bool resume);
// Makes the folder. Throws IoError.
void make_run_directory(const RunDirectory& run);

}  // namespace copus
