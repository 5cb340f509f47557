// What one step did, as every rank knows it afterwards.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "copus/plan/gns.h"

namespace copus {

// The same quantity on all ranks.
struct Spread {
  double min = 0.0, median = 0.0, max = 0.0;
  int max_rank = 0;  // whose it is, the lowest such rank; -1: of no one step
};
Spread spread_of(std::span<const double> of_ranks);

// A rank's part of the step's decision word.
struct StepFlags {
  bool stop = false;     // it was asked to end the run
  bool written = false;  // its files of the checkpoint under way are written
  bool check = false;    // it was asked for a branched check
};

// The counts are those after the step.
struct StepRecord {
  std::int64_t step = 0, tokens = 0, samples = 0;
  double loss = 0.0;       // mean over the step's tokens, before the update
  double grad_norm = 0.0;  // before clipping
  double lr = 0.0;         // as the update used it
  std::int64_t batch = 0, micro = 0;
  double seconds = 0.0, data_seconds = 0.0;
  // Over the active ranks, up to the step's scalar reduction: who computes long, and who waits for
  // whom.
  Spread compute, communication, data;
  // Between the ends of two micro-batches on the last stage, of the slowest rank; none with a
  // single micro-batch, or with virtual stages.
  std::optional<double> pace;
  std::string skip_reason;                  // not empty: nothing was updated
  bool stop_requested = false;              // on any rank
  bool check_requested = false;             // likewise
  bool all_written = false;                 // on every rank of the world
  std::optional<double> predicted_seconds;  // by the planner, where there is one
  std::optional<GnsReading> gns;            // of a step that measured the noise scale
};

}  // namespace copus
