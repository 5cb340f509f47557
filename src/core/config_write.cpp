// The resolved configuration as JSON.
#include "config_keys.h"
#include "copus/core/config_io.h"

namespace copus {
namespace {

// Some keys are refused for some models; the resolved file must not hold them.
bool belongs(const std::string& path, const ModelConfig& model) {
  if (!path.starts_with("model.")) return true;
  if (path == "model.preset") return false;
  if (!model.from.empty()) {
    bool const sized = path == "model.seq_len" && model.seq_len > 0;
    return sized || path == "model.from" || path == "model.dropout";
  }
  return !(model.is_gpt2() && path.starts_with("model.rope_"));
}

}  // namespace

nlohmann::json to_json(const Config& config) {
  detail::Table<Config> table;
  for (const detail::Key<Config>& key : detail::config_table())
    if (belongs(key.path, config.model)) table.push_back(key);
  return detail::write_keys(table, config);
}

std::vector<ConfigKey> config_keys() {
  std::vector<ConfigKey> keys;
  Config const defaults;
  for (const detail::Key<Config>& key : detail::config_table())
    keys.push_back({key.path, key.accepts, key.derived ? "null" : key.write(defaults).dump()});
  return keys;
}

}  // namespace copus
