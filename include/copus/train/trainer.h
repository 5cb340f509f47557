// The engine of one rank: its memory, its model, its state; one call a step.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "copus/backend/buffer.h"
#include "copus/core/config.h"
#include "copus/core/log.h"
#include "copus/data/loader.h"
#include "copus/model/stage.h"
#include "copus/parallel/memory.h"
#include "copus/parallel/schedule.h"
#include "copus/state/hf.h"
#include "copus/state/train_state.h"
#include "copus/train/gradients.h"
#include "copus/train/optimizer.h"

namespace copus {

// The same quantity on all ranks.
struct Spread {
  double min = 0.0, median = 0.0, max = 0.0;
};

// What one step did; the counts are those after it.
struct StepRecord {
  std::int64_t step = 0, tokens = 0, samples = 0;
  double loss = 0.0;       // mean over the step's tokens, before the update
  double grad_norm = 0.0;  // before clipping
  double lr = 0.0;
  std::int64_t batch = 0, micro = 0;
  double seconds = 0.0, data_seconds = 0.0;
  // Over the ranks, up to the step's scalar reduction: who computes long, and who waits for whom.
  Spread compute, communication, data;
  std::string skip_reason;  // not empty: nothing was updated
};

struct EvalRecord {
  double loss = 0.0;  // nats a token: sum over tokens / tokens
  std::int64_t tokens = 0;
};

// Fills the inputs and targets of sample `index`: Loader::sample, or whatever a benchmark or test
// makes up.
using SampleSource = std::function<void(std::int64_t index, std::span<std::int32_t> inputs,
                                        std::span<std::int32_t> targets)>;

class Trainer {
 public:
  // Reserves everything a step needs, once. `micro` samples a micro-batch. All active ranks of the
  // mesh make it, and call every function below, together.
  Trainer(const Config& config, Mesh& mesh, std::int64_t micro, Backend& backend);

  void draw_weights(std::uint64_t seed);
  void read_weights(const HfModel& model);
  // Over all ranks, each logical element once: the same for every layout.
  std::uint64_t weight_hash();
  // Makes the compute weights from the master after it was written from outside (a checkpoint).
  void take_master();

  // Consumes the next `batch` samples. A loss or gradient that is not finite leaves every weight
  // and moment untouched (the data position moves on) and says so in skip_reason.
  StepRecord step(const SampleSource& samples, std::int64_t batch);
  // The mean loss over `data`, with no effect on training. `log`: progress, or none.
  EvalRecord evaluate(const EvalSet& data, Log* log);

  TrainState& state() { return state_; }
  Backend& backend() { return backend_; }
  const std::vector<Param>& table() const { return table_; }
  const FlatLayout& flat() const { return flat_; }
  const MemoryPlan& memory() const { return memory_; }
  std::int64_t micro() const { return micro_; }

 private:
  struct HostBatch {
    std::vector<std::int32_t> ids, targets;  // (micro, T)
    std::int64_t first_sample = 0;
  };
  void load(const SampleSource& samples, std::int64_t batch);
  double run_schedule(std::int64_t accumulation);
  void update(std::int64_t tokens, double norm, double lr);

  Config config_;
  Mesh& mesh_;
  std::int64_t micro_;
  Backend& backend_;
  std::vector<Param> table_;
  FlatLayout flat_;
  StageSetup setup_;
  MemoryPlan memory_;
  Arena arena_;
  TensorView weights_, gradients_;
  TrainState state_;
  std::vector<Owned> owned_;
  Optimizer optimizer_;
  std::unique_ptr<Stage> stage_;
  std::unique_ptr<GradientSync> sync_;
  std::vector<HostBatch> batches_;  // of this rank's micro-batches in the step
};

}  // namespace copus
