// The process's membership in an MPI job.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "copus/comm/communicator.h"

namespace copus {

// MPI_Init on construction, MPI_Finalize on destruction. Without MPI in this build the constructor
// throws CommError.
class MpiSession {
 public:
  MpiSession(int* argc, char*** argv);
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  // Longer messages than `piece_bytes` go in several. MPI's counts are int, and Open MPI 4.1 was
  // measured to take three times as long for one of 64 MiB in shared memory as for sixteen of 4 MiB
  // (docs/benchmarks/ranks.md). Tests set it low.
  std::unique_ptr<Communicator> world(std::int64_t piece_bytes = std::int64_t{4} << 20);
  int local_rank() const;  // among the ranks of this host
  int local_size() const;
  // Whether ranks of one host see different sets of processors: `mine` is how many this one sees,
  // fewer than the host has online.
  bool processors_differ(int mine) const;
};

// x becomes the sum over ranks (of an MpiSession's world) by MPI_Allreduce alone, where
// Communicator::all_reduce takes a ring of our own for large tensors: what that is measured
// against. f32, below 1 GiB.
void library_all_reduce(Communicator& ranks, TensorView x);

bool built_with_mpi();
std::string mpi_version();

}  // namespace copus
