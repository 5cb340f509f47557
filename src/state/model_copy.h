// Copies a model from one directory into a new one that appears whole or not at all: what import
// and export share.
#pragma once
#include <functional>
#include <string>

#include "copus/state/checkpoint.h"
#include "state/checkpoint_files.h"

namespace copus {

// Called last, before the directory gets its name: what it writes into `tree` belongs to the copy.
using Finish = std::function<void(TemporaryTree& tree, const CheckpointSummary&, const FileSums&)>;

// `source` is a Hugging Face directory or a checkpoint (whose files must be the ones that were
// written; its optimizer and counters stay behind). `out` must not exist, and not lie
// inside `source`. Weights that are NaN or infinite are refused. Writes the weights as
// `dtype` under Hugging Face names, config.json, and the tokenizer's files where there are any.
CheckpointSummary copy_model(const std::string& source, const std::string& out, DType dtype,
                             const Finish& finish);

}  // namespace copus
