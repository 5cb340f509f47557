// A layout as a JSON object, as metrics and checkpoints have it.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "copus/core/config.h"
#include "copus/parallel/layout.h"

namespace copus::detail {

nlohmann::json to_json(const Layout& layout);
// Both throw ConfigError for what no layout or mode can be, `name` first.
Layout layout_from(const nlohmann::json& in, const std::string& name);
Recompute recompute_from(const std::string& text, const std::string& name);

}  // namespace copus::detail
