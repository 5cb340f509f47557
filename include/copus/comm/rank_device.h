// On which device each rank of a world computes, and how its tensors reach the others: decided by
// all ranks together, then carried out.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "copus/backend/backend.h"
#include "copus/backend/device.h"
#include "copus/comm/communicator.h"
#include "copus/core/config.h"

namespace copus {

struct DeviceRequest {
  DeviceChoice device = DeviceChoice::automatic;
  TransportChoice transport = TransportChoice::automatic;
  int local_rank = 0;    // among the ranks of this host
  bool by_flag = false;  // device and transport are flags (--device cuda), not keys (device: cuda)
};

struct RankDevice {
  bool on_gpu = false;  // the same on every rank
  int gpu = 0;          // among those this process sees
  bool nccl = false;    // the same on every rank
  // Ranks that share its memory: those of this host on the CPU, those on its GPU.
  int sharing = 1;
  int ranks_here = 1;  // on its host
  std::string words;   // of the GPU and the driver; empty on the CPU
  Gpu facts;           // of that GPU
  const Gpu* gpu_facts() const { return on_gpu ? &facts : nullptr; }
  // What keeps this rank from what was asked, by key and value.
  std::vector<std::string> problems;
  // What was decided otherwise than one might expect, to be logged once.
  std::vector<std::string> notes;
};

// `facts`: what this rank's process sees (cuda_facts). Every rank calls it with the same wishes.
// auto takes GPUs where every rank can use one, and NCCL where each has its own.
RankDevice choose_device(Communicator& world, const DeviceRequest& request, const CudaFacts& facts);

// `threads`, `widens_bf16`: of a rank on the CPU, as make_cpu_backend has them. Throws CudaError
// where the GPU fails after all.
std::unique_ptr<Backend> make_backend(const RankDevice& device, int threads,
                                      bool widens_bf16 = false);

// The ranks of `world` once more, for tensors in their backends' memory: as they are where the host
// reaches that, by NCCL, or staged through the host. Every rank calls it; `backend` outlives it.
std::unique_ptr<Communicator> join_devices(Communicator& world, const RankDevice& device,
                                           Backend& backend);

}  // namespace copus
