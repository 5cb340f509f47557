// The folder that `copus simulate --out` writes.
#pragma once
#include <string>

#include "cli/simulate_report.h"

namespace copus {

// Throws ConfigError unless the path is free or an empty directory.
void check_directory_is_free(const std::string& path);

// summary.json (the document of --json) and one POLICY.jsonl each, all of them or nothing. Throws
// IoError.
void write_simulation(const std::string& path, const SimulateReport& report);

}  // namespace copus
