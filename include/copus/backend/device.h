// The GPUs of this machine as values: what the CUDA runtime says of them, which one a rank takes,
// and in words why none can be used.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace copus {

// One that this process sees.
struct Gpu {
  int index = 0;                  // among those
  std::string name;               // "NVIDIA H100 80GB HBM3"
  std::string pci;                // "00000000:17:00.0", the same for every process of its host
  std::int64_t memory_bytes = 0;  // in all
  int capability = 0;             // 10 major + minor
};

// What the CUDA runtime answers. Versions are 1000 major + 10 minor.
struct CudaFacts {
  bool built = false;  // into this program, with code for `oldest_capability` and newer
  int oldest_capability = 0;
  int runtime = 0, driver = 0;  // driver 0: there is none
  bool driver_too_old = false;
  std::string failure;  // the driver's words where it lists no devices for another reason
  std::vector<Gpu> gpus;
};

// Asks the runtime; without CUDA in this build: that. Never throws.
CudaFacts cuda_facts();

// Why a rank cannot use GPU `index`, in words; empty when it can.
std::string gpu_problem(const CudaFacts& facts, int index);

// The GPU of the `local_rank`-th rank of a host: each its own, in turn where there are fewer.
int gpu_of_rank(const CudaFacts& facts, int local_rank);

// "NVIDIA H100 80GB HBM3 (00000000:17:00.0, 79.1 GiB, sm_90), driver for CUDA 13.0, runtime 13.0".
std::string describe(const CudaFacts& facts, int index);

// Where a rank computes; `pci` is empty for one on the CPU.
struct RankPlace {
  std::string host, pci;
};
// Why these ranks cannot each have a GPU of their own, in words that say what to type; empty when
// they have.
std::string sharing_problem(std::span<const RankPlace> ranks);
// Ranks on the host and GPU of `rank`, itself too.
int ranks_beside(std::span<const RankPlace> ranks, int rank);

}  // namespace copus
