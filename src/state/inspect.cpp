#include "copus/state/inspect.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "copus/core/error.h"
#include "copus/state/hf.h"
#include "copus/state/safetensors.h"
#include "state/checkpoint_files.h"
#include "state/checkpoint_names.h"
#include "state/checkpoint_state.h"

namespace copus {
namespace {

namespace fs = std::filesystem;

// Runs `body` and notes what it throws, once: several readers meet the same damage.
template <class Body>
void note(std::vector<std::string>& problems, Body body) {
  auto const add = [&](const std::string& problem) {
    if (std::find(problems.begin(), problems.end(), problem) == problems.end())
      problems.push_back(problem);
  };
  try {
    body();
  } catch (const ConfigError& error) {
    for (const std::string& problem : error.problems()) add(problem);
  } catch (const IoError& error) {
    add(error.what());
  }
}

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
  std::error_code error;
  report.checkpoint = fs::exists(directory + "/" + kStateFile, error);
  if (report.checkpoint) {
    report.problems = checkpoint_problems(directory);
    note(report.problems, [&] {
      FileSums sums;
      report.summary = parse_state(directory, sums);
      report.format = kCheckpointFormat;
    });
  }
  note(report.problems, [&] { report.model = read_hf_config(directory); });
  // Whether the tensors are the model's; a damaged file has been named by now.
  if (report.model && report.problems.empty()) {
    note(report.problems, [&] { HfModel(directory, *report.model, Depth::sizes); });
  }
  for (const std::string& name : tensor_files(directory)) {
    note(report.problems, [&] {
      for (StoredTensor& tensor : stored_tensors(directory + "/" + name)) {
        report.bytes += tensor.bytes;
        report.tensors.push_back(std::move(tensor));
      }
    });
  }
  return report;
}

std::vector<RunCheckpoint> inspect_run_checkpoints(const std::string& run_dir) {
  std::string const folder = run_dir + "/" + kCheckpointFolder;
  std::vector<RunCheckpoint> found;
  for (const auto& [step, name] : checkpoints_newest_first(folder)) {
    RunCheckpoint checkpoint{step, folder + "/" + name, 0, {}};
    checkpoint.problems = checkpoint_problems(checkpoint.path);
    std::vector<std::string> ignored;
    note(ignored, [&] { checkpoint.bytes = read_checkpoint_summary(checkpoint.path).bytes; });
    found.push_back(std::move(checkpoint));
  }
  return found;
}

}  // namespace copus
