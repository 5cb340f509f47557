// Ranks that each have a GPU of their own, over NVIDIA's NCCL.
#pragma once
#include <memory>
#include <string>

#include "copus/backend/backend.h"
#include "copus/comm/communicator.h"

namespace copus {

// Why this program cannot use NCCL, in words; empty where it can.
std::string nccl_problem();
std::string nccl_version();  // "2.28.9"; "none" without it

// The ranks of `world` once more, for tensors in the memory of their GPUs' backends: those go by
// NCCL, spans and barriers by `world`'s transport, which also hands round NCCL's name for the job.
// A call takes its tensors as the backend's calls before it leave them, and returns when it is
// done. It throws CommError where a peer has gone or somebody has aborted, or where the ranks have
// not all come together in time. The backend outlives it. Every rank calls it.
std::unique_ptr<Communicator> join_nccl(Communicator& world, Backend& backend);

// A rank of a job whose processes NCCL alone connects: its name for the job goes by a file that all
// of them see, which is gone once all have come. The file's name is the job's own, so that no other
// job's name is taken for it.
struct NcclJob {
  int rank = 0, size = 1;
  std::string id_file;
};
// Like the above, with spans and barriers by NCCL too. An abort here is not told to the peers: they
// see the connections end, and the launcher end the job.
std::unique_ptr<Communicator> join_nccl(const NcclJob& job, Backend& backend);

}  // namespace copus
