// One training step, timed whole and by part, on made-up tokens.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "copus/backend/backend.h"
#include "copus/comm/communicator.h"
#include "copus/comm/group_traffic.h"
#include "copus/core/config.h"
#include "copus/parallel/layout.h"
#include "copus/train/step_record.h"

namespace copus {

// All of rank 0.
struct StepPart {
  std::string name;
  double seconds = 0.0;  // a step
  double share = 0.0;    // of the step's seconds
  double rate = 0.0;     // FLOP/s (matrix products, attention) or bytes/s
  double limit = 0.0;    // what this rank reached in that unit while all measured; 0: not measured
  bool flops = false;    // the unit of rate and limit
};

// A group of ranks that rank 0 belongs to: its collectives a step, also those that run under the
// backward.
struct StepGroup {
  std::string name;
  int ranks = 1;
  GroupTraffic traffic;
};

// What measuring the noise scale costs a step that does it, from steps with and without in turn.
struct NoiseScaleCost {
  double measuring_seconds =
      0.0;                    // median of the steps that measure; step_seconds: of those without
  double paired_ratio = 1.0;  // median over neighbours of with / without
  // Seconds a step in the operations that measuring adds, timed one by one: steadier than the
  // difference of whole steps, which a busy machine drowns.
  double added_seconds = 0.0;
};

struct StepBench {
  std::int64_t micro = 0;
  double tokens_per_second = 0.0, step_seconds = 0.0;  // medians; of the whole group
  double fastest_seconds = 0.0, slowest_seconds = 0.0;
  // The host's own part of a step, the median: all that it did not spend in waiting for the device.
  // Of one rank on a device that works by itself; where it comes near the step's time the device
  // waits for the host.
  std::optional<double> issue_seconds;
  // The limits are sums over the layout's ranks, all of which measure at the same time.
  double mfu = 0.0, measured_flops = 0.0, bandwidth = 0.0;
  double peak_flops = 0.0;             // what MFU divides by: listed, or measured_flops
  std::int64_t planned_bytes = 0;      // rank 0's
  std::int64_t peak_memory_bytes = 0;  // of rank 0's process
  // Over ranks, up to the step's scalar reduction; each the median over steps.
  Spread compute, communication;
  std::vector<StepGroup> groups;  // those of more than one rank
  // Slowest first; the last, "other", is what no operation accounts for: mostly the sums over dp
  // that the backward did not hide, gathering weights, and waiting for other ranks.
  std::vector<StepPart> parts;
  std::optional<NoiseScaleCost> noise_scale;  // where the config measures it
};

// config: model, batch.sequences, batch.micro, parallel.recompute, adapt.mode, train.precision. Two
// steps to warm up, `steps` timed whole, then as many by operation; where the noise scale is
// measured, each with a step that measures it beside it. Every rank of the world calls it; the
// result is rank 0's. ConfigError where the noise scale is asked for and one micro-batch makes the
// batch. `listed_peak`: of a rank's device, where it is known.
StepBench bench_step(const Config& config, Communicator& world, const Layout& layout,
                     Backend& backend, int steps, std::optional<double> listed_peak = {});

}  // namespace copus
