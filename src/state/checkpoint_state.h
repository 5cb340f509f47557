// state.json's contents as our values and back.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "copus/state/checkpoint.h"
#include "state/checkpoint_files.h"

namespace copus {

nlohmann::json make_state(const CheckpointSummary& summary, const FileSums& sums);
// Throws a ConfigError when state.json is absent, damaged or lacks something.
CheckpointSummary parse_state(const std::string& directory, FileSums& sums);

// Each size in which a checkpoint's model is not the run's.
std::vector<std::string> model_differences(const ModelConfig& stored, const ModelConfig& wanted,
                                           const std::string& directory);

}  // namespace copus
