// A run's checkpoints, written and read by all ranks at once, whatever the layout.
#pragma once
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "copus/state/checkpoint.h"
#include "copus/state/checkpoint_draft.h"
#include "copus/train/trainer.h"

namespace copus {

// One run's. Every rank makes it and calls its functions together with the others. A save of
// several ranks first gathers each part of the model on the rank that writes it: a snapshot of
// about the state divided by the ranks, in host memory that is kept for the next one. One rank
// takes a snapshot where it does not wait.
class CheckpointWriter {
 public:
  CheckpointWriter(std::string run_dir, TokenizerIdentity tokenizer, std::int64_t keep)
      : run_dir_(std::move(run_dir)), tokenizer_(std::move(tokenizer)), keep_(keep) {}
  ~CheckpointWriter();

  // Starts to write the trainer's present state, on a thread of its own. None may be under way.
  // `wait`: finish follows before the state changes. Returns a problem that keeps it from starting,
  // the same on every rank, or "".
  std::string start(Trainer& trainer, bool wait);
  bool under_way() const { return parts_.size() > 0; }
  // Whether this rank's files are written (or have failed).
  bool written() const { return under_way() && done_; }

  struct Result {
    SavedCheckpoint saved;  // on rank 0
    std::string problem;   // not empty: there is no new checkpoint, the older ones are as they were
    double seconds = 0.0;  // since start
    double stall_seconds = 0.0;  // of those, spent in start and finish
  };
  // Waits for every rank's files and publishes them.
  Result finish(Communicator& world);

 private:
  StateReader gather(Trainer& trainer, bool wait);
  std::vector<PartSums> share_sums(Communicator& world) const;

  std::string run_dir_;
  TokenizerIdentity tokenizer_;
  std::int64_t keep_;
  // Of the one under way.
  std::vector<CheckpointPart> parts_;
  ModelConfig model_;
  Counters counters_;
  PlannerMemory planner_;
  std::unique_ptr<CheckpointDraft> draft_;  // rank 0
  std::vector<float> snapshot_[3];
  PartSums sums_;
  std::string problem_;  // of the writing thread
  std::atomic<bool> done_{false};
  std::thread thread_;
  std::chrono::steady_clock::time_point started_;
  double stall_seconds_ = 0.0;
};

// Fills the trainer's state and compute weights, each rank reading what it holds.
void load_run(const std::string& directory, const ModelConfig& model, Trainer& trainer);

}  // namespace copus
