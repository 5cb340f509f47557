// A small valid configuration, and the problems that changes to it cause.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "copus/core/config_io.h"
#include "copus/core/error.h"

namespace copus {

inline const char* const kSmall = R"({
  // comments are fine
  "model": {"family": "llama", "layers": 2, "hidden": 64, "heads": 4, "kv_heads": 2, "ffn": 128,
            "vocab": 257, "seq_len": 32},
  "data": {"train": "data/x"},
  "batch": {"sequences": 8},
  "train": {"tokens": "1M"}
})";

struct Outcome {
  Config config;
  std::vector<std::string> problems, warnings;

  // True when some one problem holds all of these pieces.
  bool names(const std::vector<std::string>& pieces) const { return has(problems, pieces); }
  bool warns(const std::vector<std::string>& pieces) const { return has(warnings, pieces); }

  static bool has(const std::vector<std::string>& lines, const std::vector<std::string>& pieces) {
    return std::any_of(lines.begin(), lines.end(), [&pieces](const std::string& line) {
      return std::all_of(pieces.begin(), pieces.end(), [&line](const std::string& piece) {
        return line.find(piece) != std::string::npos;
      });
    });
  }
};

inline Outcome parse(const std::string& text, const Overrides& overrides = {},
                     ConfigUse use = ConfigUse::train) {
  Outcome outcome;
  try {
    outcome.config = parse_config(text, "dir/case.json", overrides, use, outcome.warnings);
  } catch (const ConfigError& error) {
    outcome.problems = error.problems();
  }
  return outcome;
}

// kSmall with --set overrides.
inline Outcome with(const Overrides& overrides) {
  return parse(kSmall, overrides);
}

}  // namespace copus
