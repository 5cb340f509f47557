// A checkpoint on its way: its files under a temporary name, written by several ranks, then
// published by one.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "copus/state/checkpoint.h"
#include "copus/state/checkpoint_parts.h"

namespace copus {

// Of the two files of a part: bytes, and XXH3 of 64 bits.
struct PartSums {
  std::int64_t model_bytes = 0, optimizer_bytes = 0;
  std::uint64_t model_hash = 0, optimizer_hash = 0;
};

std::string model_file_name(std::size_t part, std::size_t parts);
std::string optimizer_file_name(std::size_t part);

// Fills `out` with a box of a tensor of one of the three buffers, row-major.
using StateReader =
    std::function<void(StateBuffer buffer, int param, const Box& box, std::span<float> out)>;
// From buffers in which every tensor that is asked for lies whole.
StateReader shard_reader(const StateShard& shard, FlatReader read);

// The model and optimizer file of parts[index], fsynced, into `folder`. Any rank; throws IoError.
PartSums write_checkpoint_part(const std::string& folder, const ModelConfig& model,
                               const std::vector<CheckpointPart>& parts, std::size_t index,
                               const StateReader& read);

// Held by one rank. Without publish, its destructor removes what was written.
class CheckpointDraft {
 public:
  // Makes RUN_DIR/checkpoints and the draft's folder in it, and removes what killed runs left
  // there. Throws IoError.
  CheckpointDraft(const std::string& run_dir, std::int64_t step);
  ~CheckpointDraft();
  CheckpointDraft(const CheckpointDraft&) = delete;
  CheckpointDraft& operator=(const CheckpointDraft&) = delete;

  static std::string draft_path(const std::string& run_dir, std::int64_t step);

  // When every part is written: state.json, config.json and the index, then the final name,
  // `latest`, and all but the `keep` newest up to this step removed. Throws IoError; the older
  // checkpoints are then untouched.
  SavedCheckpoint publish(const ModelConfig& model, const Counters& counters,
                          const std::vector<CheckpointPart>& parts,
                          const std::vector<PartSums>& written, const TokenizerIdentity& tokenizer,
                          std::int64_t keep, const PlannerMemory& planner = {});

 private:
  struct Place;
  std::unique_ptr<Place> place_;
};

// Before a run goes on from the one that was found, what an earlier end left undone: newer ones
// that were passed over get names of their own (else one that can be read again later would take
// the place of what was trained since), `latest` points to it, and all but the `keep` newest up to
// it are removed. Returns what was set aside, and what could not be done.
std::vector<std::string> settle_checkpoints(const FoundCheckpoint& found, std::int64_t keep);

}  // namespace copus
