// Everything that a run reads, opened and checked before anything is written.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "copus/comm/communicator.h"
#include "copus/core/config.h"
#include "copus/core/log.h"
#include "copus/data/loader.h"
#include "copus/state/checkpoint.h"
#include "copus/state/hf.h"
#include "train/run_directory.h"

namespace copus {

struct RunInputs {
  std::unique_ptr<RunLock> lock;  // on rank 0 of a resume: held before its checkpoint is chosen
  std::optional<Loader> train;
  std::optional<EvalSet> val;
  std::optional<HfModel> weights;  // of model.from
  FoundCheckpoint checkpoint;      // to resume from, if any; passed over ones: on rank 0
  double check_seconds = 0.0;      // that comparing its checksums took, on rank 0
};

// Every rank calls it. Collects what is wrong into `problems`; the run must not start unless that
// stays empty on all. Rank 0 looks for the checkpoint to resume from, and compares checksums.
RunInputs open_inputs(const Config& config, bool resume, const RunDirectory& run,
                      Communicator& world, Log& log, std::vector<std::string>& problems);

// Whose ids the data holds; the end of text is known for the tokenizers this program has.
TokenizerIdentity tokenizer_of(const Loader& data);

// The resolved configuration, for config.json. Throws IoError.
void write_config(const std::string& path, const Config& config);
// What the given configuration changes of the stored one, a line a key.
std::vector<std::string> config_differences(const std::string& path, const Config& config);

}  // namespace copus
