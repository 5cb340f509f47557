// How fast a transport moves data between these ranks, counted as nccl-tests counts it.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "copus/backend/backend.h"
#include "copus/comm/communicator.h"

namespace copus {

// exchange: every rank sends to the next and receives from the one before. library_all_reduce:
// MPI's own, whatever the size.
enum class CommOperation : std::uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  exchange,
  library_all_reduce
};
const char* name_of(CommOperation operation);

struct CommRate {
  CommOperation operation = CommOperation::all_reduce;
  int ranks = 1;
  // Of the larger of the two buffers: what each rank gives to a reduction, gets from a gather,
  // sends in an exchange.
  std::int64_t bytes = 0;
  double seconds = 0.0;  // a call on the slowest rank; the median of the rounds

  double algorithm_bandwidth() const { return static_cast<double>(bytes) / seconds; }
  // What one rank has to send at least, a second: comparable between operations and numbers of
  // ranks. https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
  double bus_bandwidth() const;
};

// Measures one operation at one size (cut down to what the ranks can share evenly), `rounds` times;
// before that, one call whose result is checked: sums of small integers, which are exact. A wrong
// one is a CommError that names the operation, the size and the element. Every rank calls it.
CommRate measure_comm(Communicator& ranks, Backend& backend, CommOperation operation,
                      std::int64_t bytes, int rounds);

// All operations that the transport has, at 4 KiB, 16 KiB, ... 64 MiB.
std::vector<CommRate> bench_comm(Communicator& ranks, Backend& backend, int rounds);

}  // namespace copus
