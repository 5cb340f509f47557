#include "train/saved_step.h"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "copus/core/error.h"

namespace copus {
namespace {

std::map<std::string, double> seconds_of(const nlohmann::json& result) {
  std::map<std::string, double> seconds;
  for (const nlohmann::json& part : result.at("parts"))
    seconds[part.at("name").get<std::string>()] = part.at("seconds").get<double>();
  return seconds;
}

}  // namespace

nlohmann::json read_saved_step(const std::string& file) {
  nlohmann::json const saved = nlohmann::json::parse(std::ifstream(file), nullptr, false);
  try {
    if (saved.is_object() && saved.at("tokens_per_second").get<double>() > 0.0 &&
        !seconds_of(saved).empty()) {
      return saved;
    }
  } catch (const nlohmann::json::exception&) {
    // Said below: it is some other document.
  }
  throw ConfigError(
      fmt::format("--vs {}: it takes a file that copus bench step --json has written", file));
}

StepRatios compare_steps(const std::string& file, const nlohmann::json& saved,
                         const nlohmann::json& now) {
  StepRatios ratios;
  ratios.file = file;
  ratios.total =
      now.at("tokens_per_second").get<double>() / saved.at("tokens_per_second").get<double>();
  for (const char* key : {"model", "precision", "emulate_bf16", "recompute", "batch", "micro_batch",
                          "seq_len", "transport", "ranks", "threads", "layout", "device"}) {
    if (!saved.contains(key)) continue;  // an older file's default
    nlohmann::json const there = saved.at(key), here = now.value(key, nlohmann::json());
    if (there != here)
      ratios.differences.push_back(fmt::format("{}: {}, here {}", key, there.dump(), here.dump()));
  }
  std::map<std::string, double> const before = seconds_of(saved), after = seconds_of(now);
  for (auto const& [name, seconds] : after) {
    auto const found = before.find(name);
    if (found == before.end()) {
      ratios.only_here.push_back(name);
    } else if (seconds > 0.0) {
      ratios.parts[name] = found->second / seconds;
    }
  }
  for (auto const& [name, seconds] : before) {
    if (after.count(name) == 0) ratios.only_there.push_back(name);
  }
  return ratios;
}

}  // namespace copus
