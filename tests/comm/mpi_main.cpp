// The suite under mpirun: `mpirun -n 4 test_mpi`. `test_mpi --fail` ends rank 1 in mid-collective,
// to see that the job ends.
#include <cstdio>
#include <cstring>

#include "comm/conformance.h"
#include "copus/comm/mpi.h"

int main(int argc, char** argv) {
  copus::MpiSession session(&argc, &argv);
  auto const world = session.world();
  if (argc > 1 && std::strcmp(argv[1], "--fail") == 0) {
    if (world->rank() == 1) world->abort("asked to fail");
    world->barrier();
    return 0;
  }
  try {
    copus::test::check_communicator(*world);
    // As for tensors past 2^31 bytes: everything in several pieces, none of them a whole number of
    // elements' rows.
    auto const pieces = session.world(1000);
    copus::test::check_communicator(*pieces);
  } catch (const std::exception& e) {
    world->abort(e.what());
  }
  if (world->rank() == 0)
    std::printf("conformance: ok on %d ranks over %s\n", world->size(),
                copus::mpi_version().c_str());
  return 0;
}
