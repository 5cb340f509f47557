#include "copus/comm/rank_device.h"

#include <fmt/format.h>

#include <algorithm>

#include "copus/comm/gather_texts.h"
#include "copus/comm/host_names.h"
#include "copus/comm/nccl.h"
#include "copus/comm/staged.h"

namespace copus {
namespace {

// Where every rank would compute: its host, and its GPU where it can use one.
std::vector<RankPlace> places_of(Communicator& world, const std::string& pci) {
  std::vector<RankPlace> places;
  // world: each host and GPU.
  for (const std::string& text : gather_texts(world, host_name() + "|" + pci)) {
    std::size_t const bar = text.find('|');
    places.push_back({text.substr(0, bar), text.substr(bar + 1)});
  }
  return places;
}

// What was asked for, as the user wrote it.
std::string asked(const DeviceRequest& request, const char* key, const char* value) {
  return request.by_flag ? fmt::format("--{} {}", key, value) : fmt::format("{}: {}", key, value);
}

void check_launch(const Communicator& world, const DeviceRequest& request,
                  std::vector<std::string>& problems) {
  bool const processes = world.transport() != "thread";
  if (request.transport == TransportChoice::mpi && world.transport() != "mpi") {
    problems.push_back(
        fmt::format("{}: no launcher started this process; type mpirun -n N copus ..., or use "
                    "thread or auto",
                    asked(request, "transport", "mpi")));
  }
  if (request.transport == TransportChoice::thread && processes) {
    problems.push_back(
        fmt::format("{}: a launcher started these ranks as processes; run one process with "
                    "--ranks N, or use mpi or auto",
                    asked(request, "transport", "thread")));
  }
}

// Whether tensors go by NCCL; says why not where that was asked for, or would have been expected.
void choose_transport(RankDevice& device, const Communicator& world, const DeviceRequest& request,
                      std::span<const RankPlace> places) {
  std::string const other = world.transport() + ", auto",
                    nccl = asked(request, "transport", "nccl");
  if (!device.on_gpu) {
    if (request.transport == TransportChoice::nccl) {
      device.problems.push_back(
          fmt::format("{}: the ranks compute on the CPU, and NCCL moves tensors between GPUs; "
                      "accepted here: {}",
                      nccl, other));
    }
    return;
  }
  bool const wanted = request.transport == TransportChoice::nccl ||
                      (request.transport == TransportChoice::automatic && world.size() > 1);
  if (!wanted) return;
  std::string why = nccl_problem();
  if (why.empty()) why = sharing_problem(places);
  device.nccl = why.empty();
  if (device.nccl) return;
  if (request.transport == TransportChoice::nccl) {
    device.problems.push_back(fmt::format("{}: {}; accepted here: {}", nccl, why, other));
  } else {
    device.notes.push_back(
        fmt::format("tensors go between ranks through the host's memory ({}), not by NCCL: {}",
                    world.transport(), why));
  }
}

}  // namespace

RankDevice choose_device(Communicator& world, const DeviceRequest& request,
                         const CudaFacts& facts) {
  RankDevice device;
  check_launch(world, request, device.problems);
  int const gpu = gpu_of_rank(facts, request.local_rank);
  std::string const problem =
      request.device == DeviceChoice::cpu ? "device: cpu" : gpu_problem(facts, gpu);
  std::string const pci =
      problem.empty() ? facts.gpus[static_cast<std::size_t>(gpu)].pci : std::string();
  std::vector<RankPlace> places = places_of(world, pci);
  auto const without = std::find_if(places.begin(), places.end(),
                                    [](const RankPlace& place) { return place.pci.empty(); });
  device.on_gpu = without == places.end();
  if (request.device == DeviceChoice::cuda && !problem.empty()) {
    device.problems.push_back(
        fmt::format("{}: {}; accepted here: cpu, auto", asked(request, "device", "cuda"), problem));
  }
  bool const some = std::any_of(places.begin(), places.end(),
                                [](const RankPlace& place) { return !place.pci.empty(); });
  if (!device.on_gpu && some) {
    auto const rank = without - places.begin();
    device.notes.push_back(
        fmt::format("all ranks compute on the CPU: rank {} on {} has no GPU that it can use", rank,
                    without->host));
  }
  if (device.on_gpu) {
    device.gpu = gpu;
    device.facts = facts.gpus[static_cast<std::size_t>(gpu)];
    device.words = describe(facts, gpu);
  } else {
    for (RankPlace& place : places) place.pci.clear();
  }
  device.sharing = ranks_beside(places, world.rank());
  const std::string& here = places[static_cast<std::size_t>(world.rank())].host;
  device.ranks_here = static_cast<int>(std::count_if(
      places.begin(), places.end(), [&](const RankPlace& place) { return place.host == here; }));
  choose_transport(device, world, request, places);
  return device;
}

std::unique_ptr<Backend> make_backend(const RankDevice& device, int threads, bool widens_bf16) {
  return device.on_gpu ? make_cuda_backend(device.gpu) : make_cpu_backend(threads, widens_bf16);
}

std::unique_ptr<Communicator> join_devices(Communicator& world, const RankDevice& device,
                                           Backend& backend) {
  return device.nccl ? join_nccl(world, backend) : stage_through_host(world, backend);
}

}  // namespace copus
