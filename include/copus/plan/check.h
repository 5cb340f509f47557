// What a branched check says of the critical batch: short runs of one state at several batches,
// over the same samples (after Merrill et al. 2025, arXiv 2505.23971).
//
// The noise scale says where a larger batch begins to cost; a check measures what it costs. With B
// the run's own batch and L the loss after the same tokens, the progress of a branch at k B is
//   r_k = (L_0 - L_kB) / (L_0 - L_B)
// which the objective's formula gives as a function of the critical batch phi. The phi whose
// formula is nearest to what was measured corrects the calibration.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "copus/plan/planner_memory.h"

namespace copus {

// The mean loss over an evaluation's windows, and what each stretch of them adds to it: how far the
// stretches agree says how sure a difference is.
struct PartedLoss {
  double mean = 0.0;  // nats a token
  std::vector<double> parts;
};

struct Branch {
  std::int64_t batch = 0, steps = 0;
  double lr = 0.0;    // of its last step
  double loss = 0.0;  // after it; not a number where the branch diverged
  // r, and its standard error over the evaluation's stretches. Of the run's own batch: 1, and the
  // relative error of its gain; at or below 0, or not finite, where nothing was gained.
  double progress = 0.0, error = 0.0;
};

struct Check {
  double from_loss = 0.0;
  std::vector<Branch> branches;  // the run's own batch first, the others in ascending order
};

// Fill in loss, progress and error: of the branch at the run's own batch, and of another beside it.
void measure_own(Branch& branch, const PartedLoss& from, const PartedLoss& after);
void measure_other(Branch& branch, const PartedLoss& from, const PartedLoss& own,
                   const PartedLoss& after);

// How far a check may move the critical batch from calibration x noise scale, up or down.
inline constexpr double kMostCorrection = 16.0;
// The gain at the run's own batch must be so many of its standard errors, or nothing is learned.
inline constexpr double kClearGain = 3.0;

struct CheckFinding {
  // In sequences, calibrated; none: nothing was learned.
  std::optional<double> critical_batch;
  bool at_least = false;    // the larger batches cost nothing: that is all that is known
  double correction = 1.0;  // of adapt.calibration, from now on
  std::string reason;       // for people
};

// `phi`: the noise scale times adapt.calibration; `correction`: what the last check found. Least
// squares over the branches, each taken as within what the formula can give; one that diverged
// costs all that it can.
CheckFinding find(const Check& check, Objective objective, double phi, double correction);

// The same in a run: what is found goes into its memory.
CheckFinding learn(PlannerMemory& memory, const Check& check, const PlannerRules& rules,
                   const NoiseScale& noise);

}  // namespace copus
