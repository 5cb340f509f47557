// What a checkpoint's state.json says of the files beside it.
#pragma once
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "copus/core/error.h"
#include "copus/state/hf.h"
#include "state/files.h"

namespace copus {

constexpr std::int64_t kCheckpointFormat = 1;
constexpr const char* kStateFile = "state.json";

// state.json with its own checksum added, as text; and read back, checked. An absent file is
// nothing; a damaged or newer one a ConfigError.
std::string state_text(nlohmann::json state);
std::optional<nlohmann::json> read_state(const std::string& directory);

// 16 hexadecimal digits, as to_hex writes them; nothing where it is no such text.
std::optional<std::uint64_t> parse_hex(const nlohmann::json& value);

// A checkpoint of another version of this program: whole, for all that is known.
struct OtherFormat : ConfigError {
  using ConfigError::ConfigError;
};

using FileSums = std::map<std::string, FileSum>;
nlohmann::json to_json(const FileSums& sums);
FileSums file_sums(const nlohmann::json& state, const std::string& directory);

// What is wrong with one file: missing, short, corrupt; empty when it is as recorded.
std::string file_problem(const std::string& directory, const std::string& name, const FileSum& sum,
                         Depth depth);

}  // namespace copus
