// Where checkpoints stand in a run directory.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace copus {

constexpr const char* kCheckpointFolder = "checkpoints";
constexpr const char* kLatestLink = "latest";
constexpr const char* kTemporarySuffix = ".tmp";

std::string checkpoint_name(std::int64_t step);  // "step-00000100"
// (step, name) of every directory that is named as a checkpoint, complete or not.
std::vector<std::pair<std::int64_t, std::string>> checkpoints_newest_first(
    const std::string& folder);

}  // namespace copus
