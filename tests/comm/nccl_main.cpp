// The suite over NCCL: as many ranks, as threads, as there are GPUs, and one alone. Where there is
// none it says so.
#include <cstdio>
#include <filesystem>
#include <string>

#include "comm/conformance.h"
#include "copus/backend/device.h"
#include "copus/comm/nccl.h"
#include "copus/comm/through_device.h"
#include "copus/core/error.h"
#include "support/temp_folder.h"

using namespace copus;

namespace {

void check(int ranks) {
  run_ranks(ranks, [](int rank, Communicator& world) {
    auto const backend = make_cuda_backend(rank);
    auto const joined = join_nccl(world, *backend);
    test::check_communicator(*joined, *backend);
  });
  std::printf("conformance: ok on %d ranks over NCCL %s\n", ranks, nccl_version().c_str());
}

// Ranks that a file alone brings together, and their tensors of the host through the devices.
void check_job(int ranks) {
  test::TempFolder const folder;
  std::string const file = folder / "copus-job-test";
  run_ranks(ranks, [&](int rank, Communicator&) {
    auto const backend = make_cuda_backend(rank);
    auto const host = make_cpu_backend(1);
    test::check_communicator(*join_nccl({rank, ranks, file + "-1"}, *backend), *backend);
    auto const world =
        reach_through_device(join_nccl({rank, ranks, file + "-2"}, *backend), *backend);
    test::check_communicator(*world, *host, {{0, 1, 3, 1000}, 10'000});
    // As a run does: its tensors' groups come together by the world's values.
    test::check_communicator(*join_nccl(*world, *backend), *backend, {{0, 1, 1000}, 10'000});
  });
  if (!std::filesystem::is_empty(folder.path)) throw IoError("something is left in " + folder.path);
  std::printf("conformance: ok on %d ranks that met by a file\n", ranks);
}

// A rank that fails ends its peers' waiting.
void check_failure(int ranks) {
  try {
    run_ranks(ranks, [](int rank, Communicator& world) {
      auto const backend = make_cuda_backend(rank);
      auto const joined = join_nccl(world, *backend);
      if (rank == 1) throw IoError("asked to fail");
      std::byte* const data = backend->allocate(4096);
      joined->all_reduce({data, DType::f32, {1024}}, ReduceOp::sum);
    });
  } catch (const IoError& e) {
    std::printf("conformance: ok when a rank fails (%s)\n", e.what());
    return;
  }
  throw std::runtime_error("a rank failed, and nobody was told");
}

}  // namespace

int main() {
  CudaFacts const facts = cuda_facts();
  if (std::string const problem = gpu_problem(facts, 0); !problem.empty()) {
    std::printf("SKIPPED: no GPU (%s)\n", problem.c_str());
    return 0;
  }
  try {
    auto const gpus = static_cast<int>(facts.gpus.size());
    check(1);
    if (gpus > 1) check(gpus);
    check_job(gpus);
    if (gpus > 1) check_failure(gpus);
    if (gpus == 1) std::printf("SKIPPED: several ranks over NCCL (one GPU here)\n");
  } catch (const std::exception& e) {
    std::printf("%s\n", e.what());
    return 1;
  }
  return 0;
}
