// How this process came to be: alone, with ranks as threads, or as one rank of a job of several
// processes, which MPI connects, or in a build without it NCCL.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "copus/comm/communicator.h"

namespace copus {

// Runs body on every rank of the world: on `ranks` threads of this process, or, when a launcher
// (mpirun, srun) started this process, as the one rank it is. `threads` 0 becomes this rank's share
// of the processors. `ranks` beside a launcher is a ConfigError that says what to type. An
// exception on one rank ends all.
// `ranks_alone`: how many it is without a launcher and without `ranks`.
struct RankShare {
  int threads = 1;     // of the processors
  int local_rank = 0;  // among the ranks of this host
};
using RankBody = std::function<void(Communicator& world, const RankShare& share)>;
void launch(std::optional<int> ranks, int threads, const RankBody& body, int ranks_alone = 1);

// For what is one process's work: a ConfigError where a launcher started several, which would all
// write the same files or print the same lines.
void refuse_several_processes(const std::string& command);

}  // namespace copus
