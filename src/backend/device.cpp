#include "copus/backend/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "copus/backend/backend.h"

namespace copus {
namespace {

std::string version(int number) {
  return fmt::format("{}.{}", number / 1000, number % 1000 / 10);
}

std::string capability(int number) {
  return fmt::format("{}.{}", number / 10, number % 10);
}

}  // namespace

std::string gpu_problem(const CudaFacts& facts, int index) {
  if (!facts.built) return "this program was built without CUDA";
  if (facts.driver == 0) return "this machine has no NVIDIA driver";
  if (facts.driver_too_old) {
    return fmt::format(
        "the NVIDIA driver is for CUDA {} and this program was built with CUDA {}: a newer driver "
        "is needed, or a build with CUDA {}",
        version(facts.driver), version(facts.runtime), version(facts.driver));
  }
  if (!facts.failure.empty())
    return fmt::format("the NVIDIA driver does not answer: {}", facts.failure);
  if (facts.gpus.empty()) {
    return "the NVIDIA driver shows no device to this process (CUDA_VISIBLE_DEVICES may hide them)";
  }
  if (index < 0 || index >= static_cast<int>(facts.gpus.size()))
    return fmt::format("there is no GPU {}: this process sees {}", index, facts.gpus.size());
  const Gpu& gpu = facts.gpus[static_cast<std::size_t>(index)];
  if (gpu.capability < facts.oldest_capability) {
    return fmt::format(
        "{} has compute capability {} and this program has code for {} and newer; build with "
        "-DCOPUS_CUDA_ARCHITECTURES={}",
        gpu.name, capability(gpu.capability), capability(facts.oldest_capability), gpu.capability);
  }
  return "";
}

std::string cuda_problem() {
  return gpu_problem(cuda_facts(), 0);
}

int gpu_of_rank(const CudaFacts& facts, int local_rank) {
  return facts.gpus.empty() ? 0 : local_rank % static_cast<int>(facts.gpus.size());
}

std::string describe(const CudaFacts& facts, int index) {
  const Gpu& gpu = facts.gpus.at(static_cast<std::size_t>(index));
  return fmt::format("{} ({}, {:.1f} GiB, sm_{}), driver for CUDA {}, runtime {}", gpu.name,
                     gpu.pci, static_cast<double>(gpu.memory_bytes) / (1 << 30), gpu.capability,
                     version(facts.driver), version(facts.runtime));
}

std::string sharing_problem(std::span<const RankPlace> ranks) {
  using Place = std::pair<std::string, std::string>;
  std::map<Place, std::size_t> first;
  std::size_t together = ranks.size();  // the first rank that comes to a GPU that has one
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (ranks[r].pci.empty()) return fmt::format("rank {} computes on the CPU", r);
    bool const fresh = first.emplace(Place{ranks[r].host, ranks[r].pci}, r).second;
    if (!fresh && together == ranks.size()) together = r;
  }
  if (together == ranks.size()) return "";
  const RankPlace& place = ranks[together];
  return fmt::format(
      "ranks {} and {} share GPU {} of {}, and NCCL takes one rank a GPU; these {} ranks are on {} "
      "GPUs: type mpirun -n {} copus ... (or copus ... --ranks {}), or show them more GPUs",
      first.at({place.host, place.pci}), together, place.pci, place.host, ranks.size(),
      first.size(), first.size(), first.size());
}

int ranks_beside(std::span<const RankPlace> ranks, int rank) {
  const RankPlace& mine = ranks[static_cast<std::size_t>(rank)];
  return static_cast<int>(std::count_if(ranks.begin(), ranks.end(), [&](const RankPlace& r) {
    return r.host == mine.host && r.pci == mine.pci;
  }));
}

}  // namespace copus
