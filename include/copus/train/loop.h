// A whole run: from a checked configuration to the last checkpoint.
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "copus/comm/communicator.h"
#include "copus/core/config.h"
#include "copus/plan/hardware.h"

namespace copus {

struct TrainOptions {
  bool resume = false;
  int threads = 0;     // 0: all that the process may run on
  int local_rank = 0;  // among the ranks of this host: whose GPU it is
  std::string version;
  // Of cluster.hardware, for the planner; none: the ranks measure themselves.
  std::optional<Hardware> hardware;
  // Why this process was asked to end ("SIGTERM"), or empty. Asked by several threads.
  std::function<std::string()> stop_reason;
  // Whether this process was asked for a branched check since the last call. Asked by several
  // threads, one of which has the request.
  std::function<bool()> check_asked;
};

// stopped: as asked, after a checkpoint. refused: another rank has said why.
enum class RunEnd { done, failed, stopped, refused };

// Every rank of `world` calls it. Checks everything that can be checked before anything is written
// (ConfigError), then trains until train.tokens. Rank 0 writes the run directory, every
// rank its part of a checkpoint.
RunEnd train(Config config, const TrainOptions& options, Communicator& world);

}  // namespace copus
