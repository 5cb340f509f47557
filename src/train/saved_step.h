// An earlier `copus bench step --json`, to compare with: how many times as fast this one is.
#pragma once
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace copus {

struct StepRatios {
  std::string file;
  double total = 0.0;                    // tokens/s here / there
  std::map<std::string, double> parts;   // seconds there / here, of the parts that both have
  std::vector<std::string> differences;  // "key: there, here": what was not measured alike
  std::vector<std::string> only_here, only_there;  // parts
};

// What --vs names; for before the measurement. A ConfigError where it is no result of bench step.
nlohmann::json read_saved_step(const std::string& file);
// `now`: the document that this measurement would print.
StepRatios compare_steps(const std::string& file, const nlohmann::json& saved,
                         const nlohmann::json& now);

}  // namespace copus
