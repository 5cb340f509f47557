#include "copus/state/inspect.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <unordered_set>
#include <utility>

#include "copus/core/error.h"
#include "copus/state/hf.h"
#include "copus/state/safetensors.h"
#include "state/checkpoint_files.h"
#include "state/checkpoint_names.h"
#include "state/checkpoint_state.h"

namespace copus {
namespace {

namespace fs = std::filesystem;

// What several readers find, each thing once: they meet the same damage.
class Findings {
 public:
  // Runs `body` and notes what it throws.
  template <class Body>
  void note(Body body) {
    try {
      body();
    } catch (const ConfigError& error) {
      add(error.problems());
    } catch (const IoError& error) {
      add({error.what()});
    }
  }
  void add(const std::vector<std::string>& problems) {
    for (const std::string& problem : problems)
      if (seen_.insert(problem).second) list_.push_back(problem);
  }
  bool empty() const { return list_.empty(); }
  std::vector<std::string> take() { return std::move(list_); }

 private:
  std::vector<std::string> list_;
  std::unordered_set<std::string> seen_;
};

std::vector<std::string> tensor_files(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, error)) {
    if (entry.path().extension() == ".safetensors") names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

std::vector<StoredTensor> stored_tensors(const std::string& path) {
  SafetensorsFile const file = SafetensorsFile::open(path);
  std::vector<std::pair<std::int64_t, StoredTensor>> by_offset;
  std::string const name = fs::path(path).filename();
  for (const auto& [tensor, entry] : file.tensors()) {
    by_offset.push_back(
        {entry.begin, {tensor, entry.dtype, name, entry.shape, entry.end - entry.begin}});
  }
  std::stable_sort(by_offset.begin(), by_offset.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<StoredTensor> tensors;
  for (auto& [offset, tensor] : by_offset) tensors.push_back(std::move(tensor));
  return tensors;
}

ModelReport inspect_model(const std::string& directory) {
  ModelReport report;
  Findings found;
  std::error_code error;
  report.checkpoint = fs::exists(directory + "/" + kStateFile, error);
  if (report.checkpoint) {
    found.add(checkpoint_problems(directory));
    found.note([&] {
      FileSums sums;
      report.summary = parse_state(directory, sums);
      report.format = kCheckpointFormat;
    });
  }
  found.note([&] { report.model = read_hf_config(directory); });
  // Whether the tensors are the model's; a damaged file has been named by now.
  if (report.model && found.empty()) {
    found.note([&] { HfModel(directory, *report.model, Depth::sizes); });
  }
  for (const std::string& name : tensor_files(directory)) {
    found.note([&] {
      for (StoredTensor& tensor : stored_tensors(directory + "/" + name)) {
        report.bytes += tensor.bytes;
        report.tensors.push_back(std::move(tensor));
      }
    });
  }
  report.problems = found.take();
  return report;
}

std::vector<RunCheckpoint> inspect_run_checkpoints(const std::string& run_dir) {
  std::string const folder = run_dir + "/" + kCheckpointFolder;
  std::vector<RunCheckpoint> found;
  for (const auto& [step, name] : checkpoints_newest_first(folder)) {
    RunCheckpoint checkpoint{step, folder + "/" + name, 0, {}};
    checkpoint.problems = checkpoint_problems(checkpoint.path);
    Findings ignored;
    ignored.note([&] { checkpoint.bytes = read_checkpoint_summary(checkpoint.path).bytes; });
    found.push_back(std::move(checkpoint));
  }
  return found;
}

}  // namespace copus
