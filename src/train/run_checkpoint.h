// A run's checkpoints whatever its layout: rank 0 writes and reads the whole state, the others hand
// it theirs.
#pragma once
#include <string>

#include "copus/comm/mesh.h"
#include "copus/state/checkpoint.h"
#include "copus/train/trainer.h"

namespace copus {

// All active ranks together. What was saved comes back on rank 0. While this runs rank 0 holds the
// whole state once more.
SavedCheckpoint save_run(const std::string& run_dir, const ModelConfig& model, Trainer& trainer,
                         const TokenizerIdentity& tokenizer, std::int64_t keep);
// Fills the trainer's state and compute weights. `directory` is read by rank 0.
void load_run(const std::string& directory, const ModelConfig& model, Trainer& trainer);

}  // namespace copus
