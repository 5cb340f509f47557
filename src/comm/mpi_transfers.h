// Messages over MPI that move while the rank computes.
#pragma once
#include <mpi.h>

#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "copus/comm/communicator.h"

namespace copus {

// Those of one group. MPI moves messages only while it is called: a thread of its own looks after
// them as long as there are any. Outlives its transfers.
class MpiTransfers {
 public:
  MpiTransfers() = default;
  ~MpiTransfers();
  MpiTransfers(const MpiTransfers&) = delete;
  MpiTransfers& operator=(const MpiTransfers&) = delete;

  // Of requests that have been made, the first `receives` of them receives.
  std::unique_ptr<Transfer> follow(std::vector<MPI_Request> requests, std::size_t receives);

 private:
  class Followed;
  void run();

  std::mutex mutex_;  // whoever asks after a request: MPI wants them one at a time
  std::condition_variable changed_;
  std::vector<Followed*> under_way_;
  bool stop_ = false;
  std::thread thread_;  // starts with the first
};

}  // namespace copus
