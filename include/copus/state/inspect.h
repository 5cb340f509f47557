// What a model directory holds, said also of one that is damaged or that we could not train.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "copus/state/checkpoint.h"

namespace copus {

struct StoredTensor {
  std::string name, dtype, file;
  std::vector<std::int64_t> shape;
  std::int64_t bytes = 0;
};

struct ModelReport {
  bool checkpoint = false;                   // it has a state.json
  std::int64_t format = 0;                   // of a checkpoint that can be read
  std::optional<CheckpointSummary> summary;  // likewise
  std::optional<ModelConfig> model;          // none: `problems` has why
  std::vector<StoredTensor> tensors;         // by file, in the order of their bytes
  std::int64_t bytes = 0;                    // of the tensors
  std::vector<std::string> problems;         // empty: complete, every checksum right
};

// The tensors of one safetensors file, in the order of their bytes. Throws as
// SafetensorsFile::open.
std::vector<StoredTensor> stored_tensors(const std::string& path);
// Reads every file of the directory once.
ModelReport inspect_model(const std::string& directory);

// One checkpoint of a run.
struct RunCheckpoint {
  std::int64_t step = 0;
  std::string path;
  std::int64_t bytes = 0;
  std::vector<std::string> problems;  // empty: complete
};
// The checkpoints under a run directory, newest first, each read whole.
std::vector<RunCheckpoint> inspect_run_checkpoints(const std::string& run_dir);

}  // namespace copus
