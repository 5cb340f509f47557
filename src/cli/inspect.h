// What `copus inspect` says of a path: one JSON document, and the same as a table.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace copus {

// "kind" says what was found: checkpoint, model, tensors, shard, data or run. What is damaged is
// described as far as it goes, with its "problems". Throws a ConfigError for anything else.
nlohmann::json inspect_path(const std::string& path);
nlohmann::json inspect_run(const std::string& path);

std::string inspect_table(const nlohmann::json& document);

}  // namespace copus
