// One training step, timed whole and by part, on made-up tokens.
#pragma once
#include <string>
#include <vector>

#include "copus/backend/backend.h"
#include "copus/core/config.h"

namespace copus {

struct StepPart {
  std::string name;
  double seconds = 0.0;  // a step
  double share = 0.0;    // of the step's seconds
  double rate = 0.0;     // FLOP/s (matrix products, attention) or bytes/s
  double limit = 0.0;    // what this machine was measured to reach in that unit
  bool flops = false;    // the unit of rate and limit
};

struct StepBench {
  double tokens_per_second = 0.0, step_seconds = 0.0;  // medians
  double fastest_seconds = 0.0, slowest_seconds = 0.0;
  double mfu = 0.0, peak_flops = 0.0, bandwidth = 0.0;
  std::int64_t planned_bytes = 0, peak_memory_bytes = 0;
  std::vector<StepPart> parts;  // slowest first; "other" is what no operation accounts for
};

// config: model, batch.sequences, batch.micro. Two steps to warm up, `steps` timed whole, then as
// many by operation.
StepBench bench_step(const Config& config, Backend& backend, int steps, double peak_flops,
                     double bandwidth);

}  // namespace copus
