// The steps between reading keys and a finished Config.
#pragma once
#include <set>

#include "config_codec.h"
#include "copus/core/config_io.h"

namespace copus::detail {

// A configuration on its way: what was read, which keys held a value, what was wrong so far.
struct Draft {
  Config config;
  std::set<std::string> given;
  Problems problems;

  bool has(const std::string& path) const { return given.contains(path); }
  // A problem about this key was already named: no second one about the hole it leaves.
  bool blamed(const std::string& path) const;
};

// Fills in what follows from other keys: preset, family defaults, batch of the schedule, run_dir,
// a warm-up longer than the run.
void resolve(Draft& draft, const std::string& name, ConfigUse use,
             std::vector<std::string>& warnings);
// Rules that tie keys together without the model's sizes.
void check_rules(const Config& config, Problems& problems);
// check_sizes without the complaint about missing sizes.
void check_fit(const Config& config, Problems& problems);

}  // namespace copus::detail
