// The suite under mpirun: `mpirun -n 4 test_mpi`. With --fail rank 1 ends in mid-collective, to see
// that the job ends; with --serialized MPI gives less than is asked of it; with --places each rank
// says where it is.
#include <mpi.h>

#include <cstdio>
#include <cstring>

#include "comm/conformance.h"
#include "copus/comm/mpi.h"
#include "copus/comm/staged.h"
#include "support/far_backend.h"

namespace {

bool has(int argc, char** argv, const char* flag) {
  return argc > 1 && std::strcmp(argv[1], flag) == 0;
}

}  // namespace

// MPI's profiling interface: what is defined here stands before the library's.
extern "C" int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  int const code = PMPI_Init_thread(argc, argv, required, provided);
  if (argc != nullptr && has(*argc, *argv, "--serialized")) *provided = MPI_THREAD_SERIALIZED;
  return code;
}

int main(int argc, char** argv) {
  copus::MpiSession session(&argc, &argv);
  auto const world = session.world();
  if (has(argc, argv, "--places")) {
    std::printf("rank %d of %d is %d of %d on its host\n", world->rank(), world->size(),
                session.local_rank(), session.local_size());
    return 0;
  }
  if (has(argc, argv, "--fail")) {
    if (world->rank() == 1) world->abort("asked to fail");
    world->barrier();
    return 0;
  }
  try {
    auto const memory = copus::make_cpu_backend(1);
    copus::test::check_communicator(*world, *memory);
    // C19: as for tensors past 2^31 bytes: everything in several pieces, none of them a whole
    // number of elements' rows.
    auto const pieces = session.world(1000);
    copus::test::check_communicator(*pieces, *memory);
    // Tensors that the host cannot touch, whole and in pieces of a few elements.
    copus::test::FarBackend far;
    for (std::int64_t const staging : {copus::kStagingBytes, std::int64_t{30000}}) {
      auto const staged = copus::stage_through_host(*world, far, staging);
      copus::test::check_communicator(*staged, far);
    }
  } catch (const std::exception& e) {
    world->abort(e.what());
  }
  if (world->rank() == 0)
    std::printf("conformance: ok on %d ranks over %s\n", world->size(),
                copus::mpi_version().c_str());
  return 0;
}
