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
#include "copus/state/hf.h"
#include "copus/state/train_state.h"
#include "copus/train/optimizer.h"

namespace copus {

// What one step did; the counts are those after it.
struct StepRecord {
  std::int64_t step = 0, tokens = 0, samples = 0;
  double loss = 0.0;       // mean over the step's tokens, before the update
  double grad_norm = 0.0;  // before clipping
  double lr = 0.0;
  std::int64_t batch = 0, micro = 0;
  double seconds = 0.0, data_seconds = 0.0;
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
  // Reserves everything a step needs, once. `micro` samples a micro-batch.
  Trainer(const Config& config, const Layout& layout, std::int64_t micro, Backend& backend);

  void draw_weights(std::uint64_t seed);
  void read_weights(const HfModel& model);
  std::uint64_t weight_hash();

  // Consumes the next `batch` samples. A loss or gradient that is not finite leaves every weight
  // and moment untouched (the data position moves on) and says so in skip_reason.
  StepRecord step(const SampleSource& samples, std::int64_t batch);
  // The mean loss over `data`, with no effect on training.
  EvalRecord evaluate(const EvalSet& data, Log* log);

  TrainState& state() { return state_; }
  const std::vector<Param>& table() const { return table_; }
  const FlatLayout& flat() const { return flat_; }
  const MemoryPlan& memory() const { return memory_; }
  std::int64_t micro() const { return micro_; }

 private:
  Config config_;
  std::int64_t micro_;
  Backend& backend_;
  std::vector<Param> table_;
  FlatLayout flat_;
  MemoryPlan memory_;
  Arena arena_;
  TensorView gradients_;
  TrainState state_;
  std::unique_ptr<Stage> stage_;
  Optimizer optimizer_;
  std::vector<std::int32_t> ids_, targets_;  // (micro, T) on the host
};

// The micro-batch that "auto" stands for: the largest divisor of every batch the run will use with
// at most 4,096 tokens.
std::int64_t choose_micro(const Config& config);

}  // namespace copus
