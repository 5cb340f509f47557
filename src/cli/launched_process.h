// What a launcher that is not MPI's tells a process of itself, by environment variables.
#pragma once
#include <functional>
#include <optional>
#include <string>

namespace copus {

struct LaunchedProcess {
  int rank = 0, size = 1, local_rank = 0;
  std::string job;  // a name that no other job has, nor the same one after a restart
};

// The value of a variable, or null.
using Variable = std::function<const char*(const char* name)>;

// RANK, WORLD_SIZE and LOCAL_RANK (torchrun and its like), or srun's SLURM_PROCID,
// SLURM_STEP_NUM_TASKS and SLURM_LOCALID; none where the process is not one of several. The job's
// name is COPUS_JOB, or srun's or torchrun's own. Throws ConfigError where they do not fit
// together.
std::optional<LaunchedProcess> launched_process(const Variable& variable);

}  // namespace copus
