// Checkpoints: TrainState on disk, free of any layout, complete or not there at all.
//
// RUN/checkpoints/step-00000100/ holds model.safetensors (fp32 master weights; or parts and their
// index) and config.json, so that the directory is itself a Hugging Face model;
// optimizer-00001.safetensors and on (logical names + ".m", ".v"); and state.json: format,
// counters, model, sizes and checksums of the other files. `latest` is a link to the newest.
// Several ranks write by state/checkpoint_draft.h; here one that holds the whole model does.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "copus/backend/backend.h"
#include "copus/core/config.h"
#include "copus/parallel/params.h"
#include "copus/parallel/state_shard.h"
#include "copus/state/train_state.h"

namespace copus {

// Streams between a rank's flat buffers and the host, wherever the buffers live: elements [offset,
// offset + size) of one of them.
enum class StateBuffer : std::uint8_t { master, m, v };
using FlatReader = std::function<void(StateBuffer, std::int64_t offset, std::span<float> out)>;
using FlatWriter =
    std::function<void(StateBuffer, std::int64_t offset, std::span<const float> elements)>;
// For buffers that the host can address; the views must outlive the function.
FlatReader host_reader(const TrainState& state);
FlatWriter host_writer(const TrainState& state);
// For buffers of a backend, wherever it keeps them; backend and buffers must outlive the function.
FlatReader backend_reader(Backend& backend, const TrainState& state);
FlatWriter backend_writer(Backend& backend, const TrainState& state);

// The model a rank holds: its table and where each tensor lies in the flat buffers.
struct FlatModel {
  const ModelConfig& config;
  const std::vector<Param>& table;
  const FlatLayout& layout;
};

// Its master, m and v: everything but a tied copy.
StateShard shard_of(const FlatModel& model);

struct TokenizerIdentity {
  std::string id;                           // as in the data shards' header; empty: unknown
  std::optional<std::int64_t> end_of_text;  // for config.json's bos and eos
  std::uint64_t data = 0;                   // Loader::identity of the training data; 0: unknown
};

struct SavedCheckpoint {
  std::string directory;
  std::int64_t bytes = 0;
  std::vector<std::string> warnings;  // `latest` not moved, older ones not removed
};

// Writes RUN_DIR/checkpoints/step-N under a temporary name, syncs, renames, moves `latest`, then
// removes all but the `keep` newest up to this step. On any failure (IoError, or whatever `read`
// throws) the older checkpoints are untouched and the temporary files gone.
SavedCheckpoint save_checkpoint(const std::string& run_dir, const FlatModel& model,
                                const Counters& counters, const FlatReader& read,
                                const TokenizerIdentity& tokenizer, std::int64_t keep);

// What a checkpoint says of itself.
struct CheckpointSummary {
  ModelConfig model;
  Counters counters;
  PlannerMemory planner;
  bool has_optimizer = false;
  std::string tokenizer;
  std::int64_t bytes = 0;
  std::uint64_t data = 0;  // identity of the training data; 0: not told
};
CheckpointSummary read_checkpoint_summary(const std::string& directory);

// Throws ConfigError with each size in which its model is not this one.
void require_same_model(const std::string& directory, const ModelConfig& model);

// Everything that makes a checkpoint unusable, each file read and compared with its checksum.
// Empty: complete.
std::vector<std::string> checkpoint_problems(const std::string& directory);
// Of a directory that has a state.json: throws ConfigError naming each file beside the tensors
// (whose checksums are held where they are opened) that is not as it was written.
void check_small_files(const std::string& directory);

struct FoundCheckpoint {
  struct PassedOver {
    std::string directory;
    std::vector<std::string> problems;
  };
  std::string directory;             // empty: none is complete
  std::vector<PassedOver> rejected;  // newer ones
};
// Throws IoError where one cannot be read for a reason that is no damage (permissions, a file
// system that is away), ConfigError where one has a newer format: older ones are then not taken
// instead.
FoundCheckpoint newest_complete(const std::string& run_dir);
// The newest whose state.json and config.json are as written, its tensors unread, or "": for the
// model's sizes, which every process must know before one of them checks the whole.
std::string newest_described(const std::string& run_dir);

// Streams weights alone (from a checkpoint or a Hugging Face directory), or all of TrainState, into
// a rank's flat buffers, tensor by tensor. A checkpoint of another model is refused, every
// difference named; a damaged one too.
void load_model_weights(const std::string& directory, const FlatModel& model,
                        const FlatWriter& write);
Counters load_train_state(const std::string& directory, const FlatModel& model,
                          const FlatWriter& write);
// The same into the shard of any rank of any layout: it reads the rows that it holds. The files are
// not compared with their checksums: newest_complete, on one rank, has.
Counters load_train_state(const std::string& directory, const ModelConfig& model,
                          const StateShard& shard, const FlatWriter& write);

// Turns a Hugging Face directory into a checkpoint of weights alone, fp32, with its tokenizer
// files. `out` must not exist, nor lie inside `hf_dir`; a weight that is NaN or infinite is a
// ConfigError. Returns what was written.
CheckpointSummary import_checkpoint(const std::string& hf_dir, const std::string& out);
// Turns a checkpoint into a Hugging Face directory: weights as f32 or bf16 (rounded to the nearest,
// ties to even), config.json, tokenizer files. `out` must not exist. Returns what was written.
CheckpointSummary export_checkpoint(const std::string& checkpoint, const std::string& out,
                                    DType dtype);

}  // namespace copus
