// Short runs from the trainer's present state at several batches over the same samples, and what
// each brought; the state is afterwards as it was, bit for bit.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "copus/core/config.h"
#include "copus/plan/check.h"
#include "copus/train/trainer.h"

namespace copus {

struct CheckRequest {
  std::vector<std::int64_t> batches;  // the run's own first, then larger ones
  std::int64_t samples = 0;           // that each branch consumes: whole steps of every batch
  std::string refused = {};           // not empty: why there is nothing to try
  // The memory that this rank may take for the snapshot; negative: it is not asked.
  std::int64_t free_bytes = -1;
  // Whether this rank was asked to end the run: the check then ends at once on all of them.
  std::function<bool()> stop = {};
  // Called before each step and each evaluation with what comes next, for people.
  std::function<void(const std::string&)> show = {};
};

// What a run in this layout would try: `batch` and those of twice and four times it that are legal
// and within batch.max, over adapt.check_tokens or 16 steps of the largest, rounded up to whole
// steps of each. `samples_left`: that the run may draw; negative: any number.
CheckRequest check_request(const Config& config, const Layout& layout, std::int64_t micro,
                           std::int64_t batch, std::int64_t samples_left);

struct CheckRun {
  Check check;           // complete on rank 0
  std::string refused;   // not empty: why it was not carried out, the same on every rank
  bool stopped = false;  // half-way, on every rank: no result
  double seconds = 0.0;
};

// Every rank together. A branch whose loss or gradient is not finite ends there.
CheckRun branched_check(Trainer& trainer, const SampleSource& samples, const EvalSet& data,
                        const CheckRequest& request);

}  // namespace copus
