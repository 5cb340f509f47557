// The twin of nccl_comm.cpp in a build without NCCL.
#include "copus/comm/nccl.h"
#include "copus/core/error.h"

namespace copus {

std::string nccl_problem() {
  return "this program was built without NCCL (COPUS_NCCL)";
}

std::string nccl_version() {
  return "none";
}

std::unique_ptr<Communicator> join_nccl(Communicator&, Backend&) {
  throw CommError(nccl_problem());
}

std::unique_ptr<Communicator> join_nccl(const NcclJob&, Backend&) {
  throw CommError(nccl_problem());
}

}  // namespace copus
