// How ranks come together over NCCL.
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "backend/cuda/check.h"
#include "comm/job_note.h"
#include "comm/nccl_calls.h"
#include "comm/nccl_communicator.h"
#include "copus/comm/broadcast.h"
#include "copus/comm/nccl.h"
#include "copus/core/error.h"

namespace copus {

std::string nccl_problem() {
  return "";
}

std::string nccl_version() {
  int version = 0;
  if (ncclGetVersion(&version) != ncclSuccess) return "unknown";
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

namespace {

CudaBackend& cuda_of(Backend& backend) {
  auto* const cuda_backend = dynamic_cast<CudaBackend*>(&backend);
  COPUS_CHECK(cuda_backend != nullptr, "NCCL moves tensors between GPUs");
  return *cuda_backend;
}

ncclUniqueId fresh_id() {
  ncclUniqueId id{};
  NCCL_CHECK(ncclGetUniqueId(&id));
  return id;
}

struct Place {
  int rank = 0, size = 1;
};

std::unique_ptr<Communicator> join(const ncclUniqueId& id, const Place& place,
                                   std::unique_ptr<Communicator> host, CudaBackend& backend) {
  ncclConfig_t config = config_of_ours();
  ncclComm_t comm = nullptr;
  NCCL_CHECK(ncclCommInitRankConfig(&comm, place.size, id, place.rank, &config));
  auto group = std::make_unique<NcclCommunicator>(comm, std::move(host), backend,
                                                  std::make_shared<NcclGroups>());
  group->await_peers();
  return group;
}

}  // namespace

std::unique_ptr<Communicator> join_nccl(Communicator& world, Backend& backend) {
  CudaBackend& cuda_backend = cuda_of(backend);
  CUDA_CHECK(cudaSetDevice(cuda_backend.device()));
  ncclUniqueId id{};
  if (world.rank() == 0) id = fresh_id();
  broadcast_value(world, id, 0);  // world: NCCL's name for the job
  return join(id, {world.rank(), world.size()}, world.split(0, world.rank()), cuda_backend);
}

std::unique_ptr<Communicator> join_nccl(const NcclJob& job, Backend& backend) {
  CudaBackend& cuda_backend = cuda_of(backend);
  CUDA_CHECK(cudaSetDevice(cuda_backend.device()));
  ncclUniqueId id{};
  if (job.rank == 0) {
    id = fresh_id();
    leave_note(job.id_file, std::string(id.internal, sizeof id.internal));
  } else {
    std::string const note = await_note(job.id_file, kJoinTime);
    if (note.size() != sizeof id.internal)
      throw CommError(job.id_file + ": is not a name that NCCL gave to a job");
    std::copy(note.begin(), note.end(), id.internal);
  }
  auto group = join(id, {job.rank, job.size}, nullptr, cuda_backend);
  if (job.rank == 0) remove_note(job.id_file);  // everyone has come by it
  return group;
}

}  // namespace copus
