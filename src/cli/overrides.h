// --set key=value, as the subcommands that read a configuration take it.
#pragma once
#include <string>
#include <vector>

#include "copus/core/config_io.h"

namespace CLI {
class App;
}

namespace copus {

void add_set_option(CLI::App& command, std::vector<std::string>& assignments);
// What does not read as key=value is named in `problems`.
Overrides overrides_of(const std::vector<std::string>& assignments,
                       std::vector<std::string>& problems);

}  // namespace copus
