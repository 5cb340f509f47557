#include "plan/layout_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "copus/core/config_io.h"
#include "copus/core/error.h"

namespace copus::detail {

nlohmann::json to_json(const Layout& layout) {
  return {{"dp", layout.dp},     {"tp", layout.tp},
          {"pp", layout.pp},     {"virtual_stages", layout.virtual_stages},
          {"zero", layout.zero}, {"sequence_parallel", layout.sequence_parallel}};
}

Layout layout_from(const nlohmann::json& in, const std::string& name) {
  Layout layout;
  in.at("dp").get_to(layout.dp);
  in.at("tp").get_to(layout.tp);
  in.at("pp").get_to(layout.pp);
  in.at("virtual_stages").get_to(layout.virtual_stages);
  in.at("zero").get_to(layout.zero);
  in.at("sequence_parallel").get_to(layout.sequence_parallel);
  bool const possible = layout.dp >= 1 && layout.tp >= 1 && layout.pp >= 1 &&
                        layout.virtual_stages >= 1 && (layout.zero == 0 || layout.zero == 1);
  if (!possible) {
    throw ConfigError(
        fmt::format("{}: layout is {}; dp, tp, pp and virtual_stages are 1 or more, zero is 0 or 1",
                    name, in.dump()));
  }
  return layout;
}

Recompute recompute_from(const std::string& text, const std::string& name) {
  for (Recompute const mode : {Recompute::none, Recompute::selective, Recompute::full}) {
    if (text == name_of(mode)) return mode;
  }
  throw ConfigError(fmt::format("{}: recompute is \"{}\"; none, selective or full", name, text));
}

}  // namespace copus::detail
