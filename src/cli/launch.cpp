#include "cli/launch.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>

#include "cli/launched_process.h"
#include "cli/say.h"
#include "copus/backend/backend.h"
#include "copus/backend/device.h"
#include "copus/comm/gather_texts.h"
#include "copus/comm/host_names.h"
#include "copus/comm/mpi.h"
#include "copus/comm/nccl.h"
#include "copus/comm/through_device.h"
#include "copus/core/error.h"

namespace copus {
namespace {

// srun without an MPI plugin starts tasks that do not know of each other: each would train alone.
const char* tasks_apart() {
  const char* const tasks = std::getenv("SLURM_STEP_NUM_TASKS");
  return tasks != nullptr && std::atoi(tasks) > 1 ? tasks : nullptr;
}

// The variable by which a launcher tells a process how many it started, if there is one: Open MPI's
// mpirun, srun --mpi=pmix or pmi2, MPICH.
const char* launcher_size() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    if (std::getenv(name) != nullptr) return std::getenv(name);
  }
  bool const step_of_srun =
      std::getenv("PMIX_RANK") != nullptr && std::getenv("SLURM_STEP_NUM_TASKS") != nullptr;
  return step_of_srun ? std::getenv("SLURM_STEP_NUM_TASKS") : nullptr;
}

int usable_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

void warn_of_processors(int ranks_here, int threads, const char* remedy) {
  int const processors = usable_processors();
  if (ranks_here * threads > processors) {
    say_warning(fmt::format("{} ranks of {} threads on {} processors: they take turns{}",
                            ranks_here, threads, processors, remedy));
  }
}

void launch_threads(int ranks, int threads, const RankBody& body) {
  // Every rank of a group looks at every other: far above any machine's processors that alone takes
  // minutes.
  constexpr int kMost = 1024;
  if (ranks > kMost) {
    throw ConfigError(
        fmt::format("--ranks {}: one process runs at most {} ranks, as threads; accepted: "
                    "fewer, or mpirun -n {} copus ...",
                    ranks, kMost, ranks));
  }
  int const share = threads > 0 ? threads : std::max(1, usable_processors() / ranks);
  warn_of_processors(ranks, share, "; --threads or --ranks asks for less");
  run_ranks(ranks, [&](int rank, Communicator& world) { body(world, {share, rank}); });
}

// Another MPI's launcher starts processes that each see a world of their own.
void check_world(int size, const char* launched) {
  if (size == std::atoi(launched)) return;
  throw ConfigError(
      fmt::format("the launcher started {} ranks, and MPI ({}) sees a world of {}; type: mpirun -n "
                  "{} copus ..., "
                  "with the mpirun of the MPI that this binary was built with, or srun --mpi=pmix",
                  launched, mpi_version(), size, launched));
}

// Said by rank 0 alone, of the whole world.
void check_ranks(std::optional<int> ranks, const Communicator& world) {
  if (!ranks || *ranks == world.size()) return;
  if (world.rank() != 0) throw ConfigError(std::vector<std::string>{});
  throw ConfigError(
      fmt::format("--ranks {}: the launcher started {} ranks; leave --ranks out, or type: mpirun "
                  "-n {} copus ..., with --oversubscribe where the processors are fewer",
                  *ranks, world.size(), *ranks));
}

// One rank of several processes. What a rank throws is told, and ends the others too: over MPI the
// job at once.
void run_rank(Communicator& world, const std::function<void()>& body) {
  try {
    body();
  } catch (const ConfigError& e) {
    // Every rank stops at the same place. Told before any of them ends: a launcher stops the others
    // when the first does.
    for (const std::string& problem : e.problems()) say_error(problem);
    world.barrier();  // world: all is told
    throw ConfigError(std::vector<std::string>{});
  } catch (const CommError& e) {
    world.abort(fmt::format("{}; `copus bench comm` under the same launcher checks what {} does",
                            e.what(), world.transport() == "mpi" ? mpi_version() : nccl_version()));
    throw;
  } catch (const std::exception& e) {
    world.abort(e.what());
    throw;
  }
}

void launch_mpi(std::optional<int> ranks, int threads, const char* launched, const RankBody& body) {
  MpiSession session(nullptr, nullptr);
  std::unique_ptr<Communicator> const world = session.world();
  check_world(world->size(), launched);
  // Bound ranks see the processors they are bound to; free ones share the host's.
  int const here = session.local_size();
  bool const bound = session.processors_differ(usable_processors());
  int const share = threads > 0 ? threads : std::max(1, usable_processors() / (bound ? 1 : here));
  if (world->rank() == 0) {
    warn_of_processors(bound ? 1 : here, share,
                       bound ? "; mpirun --bind-to none lets a rank use more than one"
                             : "; fewer ranks, or --threads, asks for less");
  }
  run_rank(*world, [&] {
    check_ranks(ranks, *world);
    body(*world, {share, session.local_rank()});
  });
}

// Processes that NCCL alone connects: a GPU each.
void launch_nccl(const LaunchedProcess& process, std::optional<int> ranks, int threads,
                 const RankBody& body) {
  CudaFacts const facts = cuda_facts();
  int const gpu = gpu_of_rank(facts, process.local_rank);
  std::string problem = nccl_problem();
  if (problem.empty()) problem = gpu_problem(facts, gpu);
  if (!problem.empty()) {
    throw ConfigError(fmt::format(
        "a launcher started {} processes, but this binary was built without MPI; build "
        "with -DCOPUS_MPI=ON, or run one process with --ranks N. NCCL, which can connect "
        "them too, cannot: {}",
        process.size, problem));
  }
  auto const backend = make_cuda_backend(gpu);
  auto const world = reach_through_device(
      join_nccl({process.rank, process.size, "copus-job-" + process.job}, *backend), *backend);
  run_rank(*world, [&] {
    check_ranks(ranks, *world);
    std::vector<std::string> const hosts = gather_texts(*world, host_name());
    auto const here = static_cast<int>(std::count(hosts.begin(), hosts.end(), host_name()));
    int const share = threads > 0 ? threads : std::max(1, usable_processors() / here);
    body(*world, {share, process.local_rank});
  });
}

}  // namespace

void launch(std::optional<int> ranks, int threads, const RankBody& body, int ranks_alone) {
  if (!built_with_mpi()) {
    auto const process = launched_process([](const char* name) { return std::getenv(name); });
    if (process) return launch_nccl(*process, ranks, threads, body);
  }
  const char* const size = launcher_size();
  if (size == nullptr && tasks_apart() != nullptr) {
    throw ConfigError(fmt::format(
        "srun started {} tasks that do not know of each other; type: srun --mpi=pmix -n {} copus "
        "..., or start one task and give it --ranks",
        tasks_apart(), tasks_apart()));
  }
  if (size == nullptr) return launch_threads(ranks.value_or(ranks_alone), threads, body);
  if (!built_with_mpi()) {
    throw ConfigError(
        "a launcher started this process as one of several, but this binary was built without MPI; "
        "build with -DCOPUS_MPI=ON, or "
        "run one process with --ranks N");
  }
  launch_mpi(ranks, threads, size, body);
}

void refuse_several_processes(const std::string& command) {
  const char* const size = launcher_size();
  if (size == nullptr || std::atoi(size) <= 1) return;
  throw ConfigError(fmt::format(
      "copus {} is one process's work, and a launcher started {}; type it without mpirun or srun",
      command, size));
}

}  // namespace copus
