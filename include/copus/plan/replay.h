// A recorded run's metrics through the planner once more: what it would have decided, by the same
// function that decides in the running job.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "copus/core/config.h"
#include "copus/plan/check.h"
#include "copus/plan/verdict.h"

namespace copus {

// One decision of the trace: as it was recorded, and as it comes out now.
struct ReplayedDecision {
  std::int64_t step = 0;
  Configuration recorded_to;
  std::string recorded_reason;
  double recorded_predicted = 0.0, recorded_current = 0.0, recorded_probability = 0.0;
  Decision decision;
};
struct ReplayedVerdict {
  std::int64_t step = 0;
  bool recorded_kept = true;
  Verdict verdict;
};
struct ReplayedCheck {
  std::int64_t step = 0;
  std::optional<double> recorded_critical_batch;
  double recorded_calibration = 0.0;  // adapt.calibration times the correction
  CheckFinding finding;
};
struct Replay {
  std::vector<ReplayedDecision> decisions;
  std::vector<ReplayedVerdict> verdicts;
  std::vector<ReplayedCheck> checks;
};

// `metrics`: lines of a metrics.jsonl of a run with this configuration and adapt.mode suggest or
// act. Each `planner` event (one a start) begins with what that start knew. Steps and switches are
// taken from the recording, whatever is decided now. Throws ConfigError, `name` and the line first,
// for lines that no such run has written.
Replay replay(const Config& config, const std::string& metrics, const std::string& name);

}  // namespace copus
