// A whole run: from a checked configuration to the last checkpoint.
#pragma once
#include <string>

#include "copus/core/config.h"

namespace copus {

struct TrainOptions {
  bool resume = false;
  int threads = 0;  // 0: all that the process may run on
  std::string version;
};

enum class RunEnd { done, failed };

// Checks everything that can be checked before anything is written (ConfigError), then trains until
// train.tokens.
RunEnd train(Config config, const TrainOptions& options);

}  // namespace copus
