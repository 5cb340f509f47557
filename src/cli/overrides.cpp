#include "cli/overrides.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

namespace copus {

void add_set_option(CLI::App& command, std::vector<std::string>& assignments) {
  command.add_option("--set", assignments, "Override a key, as section.key=value; may be repeated")
      ->allow_extra_args(false);
}

Overrides overrides_of(const std::vector<std::string>& assignments,
                       std::vector<std::string>& problems) {
  Overrides overrides;
  for (const std::string& text : assignments) {
    std::size_t const at = text.find('=');
    if (at == std::string::npos || at == 0) {
      problems.push_back(
          fmt::format("--set {}: expected key=value, for example --set train.tokens=10M", text));
    } else {
      overrides.emplace_back(text.substr(0, at), text.substr(at + 1));
    }
  }
  return overrides;
}

}  // namespace copus
