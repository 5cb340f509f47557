// Evaluation alone: the model of a checkpoint, forward only.
#pragma once
#include <string>

#include "copus/core/log.h"
#include "copus/train/trainer.h"

namespace copus {

// The mean loss of the model in `directory` over `data`, summed over all its tokens; the same on
// every rank of `world`, each of which holds the whole model and takes its share of the windows.
// `log`: progress, or none.
EvalRecord evaluate_checkpoint(const std::string& directory, const ModelConfig& model,
                               const EvalSet& data, Communicator& world, Backend& backend,
                               Log* log);

// The mean loss over `data` of whatever weights the ranks' stages run, `micro` windows at a time;
// the same on every rank. `log`: progress, or none. `stop`: as Trainer::evaluate's.
EvalRecord evaluate(Stage& stage, const Mesh& mesh, const EvalSet& data, std::int64_t micro,
                    std::int64_t seq_len, Log* log, const std::function<bool()>& stop);

}  // namespace copus
