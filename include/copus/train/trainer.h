// One rank of a training run between its steps: the state, the layout that runs it, and the change
// from one to another.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "copus/comm/mesh_cache.h"
#include "copus/core/config.h"
#include "copus/core/log.h"
#include "copus/data/loader.h"
#include "copus/state/hf.h"
#include "copus/state/train_state.h"
#include "copus/train/batch_rule.h"
#include "copus/train/engine.h"
#include "copus/train/pipeline.h"
#include "copus/train/step_record.h"
#include "copus/train/switch.h"

namespace copus {

struct EvalRecord {
  double loss = 0.0;  // nats a token: sum over tokens / tokens
  std::int64_t tokens = 0;
  bool stopped = false;  // before the end: no result
  // Sums over stretches of the windows, the same stretches for the same data, layout and
  // micro-batch.
  std::vector<double> parts = {};
};

// Fills the inputs and targets of sample `index`: Loader::sample, or whatever a benchmark or test
// makes up.
using SampleSource = std::function<void(std::int64_t index, std::span<std::int32_t> inputs,
                                        std::span<std::int32_t> targets)>;

class Trainer {
 public:
  static constexpr std::size_t kKeptMeshes = 2;

  // Reserves everything a step needs, once. `micro` samples a micro-batch. Every rank of the world
  // makes it and calls every function below together with the others; ranks beyond the layout hold
  // nothing and only keep count.
  Trainer(const Config& config, Communicator& world, const Layout& layout, std::int64_t micro,
          Backend& backend, std::size_t kept_meshes = kKeptMeshes);

  void draw_weights(std::uint64_t seed);
  void read_weights(const HfModel& model);
  // Over all active ranks, each logical element once: the same for every layout. 0 on idle ranks.
  std::uint64_t weight_hash();
  // Makes the compute weights from the master after it was written from outside (a checkpoint).
  void take_master();

  // Consumes the next `batch` samples. A loss or gradient that is not finite leaves every weight
  // and moment untouched (the data position moves on) and says so in skip_reason. `flags`: what
  // this rank has to say; every rank's record then has it.
  StepRecord step(const SampleSource& samples, std::int64_t batch, StepFlags flags = {});
  // The mean loss over `data`, with no effect on training. `log`: progress, or none. `stop` is
  // asked now and then; when it is true on any rank, every rank returns without a result. Idle
  // ranks learn no loss.
  EvalRecord evaluate(const EvalSet& data, Log* log, const std::function<bool()>& stop = {});
  // Goes on in another layout with the same state, or says why not. What fails before the swap
  // leaves everything as it was, on every rank; a CommError ends the run.
  SwitchRecord switch_to(const SwitchRequest& request);

  bool active() const { return engine_ != nullptr; }
  Communicator& world() { return *world_; }
  // Of all this rank's groups, the world's too; may be read by any thread.
  const CommActivity& activity() const { return *activity_; }
  CommActivity& activity() { return *activity_; }  // for the run to say what it is at
  const Layout& layout() const { return mesh_.layout(); }
  const Mesh& mesh() const { return mesh_; }
  // Views are empty on idle ranks, the counters equal everywhere.
  TrainState& state() { return state_; }
  Backend& backend() { return backend_; }
  const ModelConfig& model() const { return config_.model; }
  const std::vector<Param>& table() const { return table_; }
  const FlatLayout& flat() const { return engine_->flat(); }  // active ranks only
  // Of this rank; an idle one's is that of the first stage.
  const MemoryPlan& memory() const { return memory_; }
  std::int64_t micro() const { return micro_; }

 private:
  struct HostBatch {
    std::vector<std::int32_t> ids, targets;  // (micro, T)
    std::int64_t first_sample = 0;
  };
  // What this rank gives to the step's scalar reduction.
  struct Share {
    double loss_sum = 0.0, square_sum = 0.0;
    double compute = 0.0, communication = 0.0, data = 0.0;  // seconds
    double pace = 0.0;  // seconds a micro-batch, where the last stage measured it
    StepFlags flags;
    PointSums first, local;  // of the noise scale
  };
  struct SwitchWork;

  void adopt(std::unique_ptr<Engine> engine);
  void load(const SampleSource& samples, std::int64_t batch);
  Share compute(const SampleSource& samples, std::int64_t batch);
  PipelineResult run_schedule(std::int64_t accumulation);
  bool measures_now() const;
  void share_points(std::int64_t batch, Share& share) const;
  StepNorms reduce_scalars(const Share& share, std::int64_t step_tokens, StepRecord& record);
  void observe(const StepNorms& norms, StepRecord& record);
  StepScalars count(std::int64_t batch, StepRecord& record);
  void update(std::int64_t tokens, double norm, const StepScalars& scalars);

  std::unique_ptr<Engine> make_engine(const Mesh& mesh, std::int64_t micro);
  bool make_ready(SwitchWork& work);
  std::string plan_switch(SwitchWork& work);
  std::string allocate_switch(SwitchWork& work);
  std::string move_for_switch(SwitchWork& work);
  std::string verify_switch(SwitchWork& work);
  void swap_engines(SwitchWork& work);

  Config config_;
  std::shared_ptr<CommActivity> activity_ = std::make_shared<CommActivity>();
  TrafficCounter world_traffic_;
  std::unique_ptr<Communicator> world_;
  Backend& backend_;
  std::vector<Param> table_;
  MeshCache meshes_;
  Mesh mesh_;
  std::int64_t micro_;
  // One for every engine of the rank: its thread comes once. None of its jobs outlives an engine.
  std::unique_ptr<CollectiveQueue> queue_ = std::make_unique<CollectiveQueue>();
  std::unique_ptr<Engine> engine_;  // none on an idle rank
  MemoryPlan memory_;
  TrainState state_;
  std::vector<HostBatch> batches_;  // of this rank's micro-batches in the step
};

}  // namespace copus
