// The twin of mpi_comm.cpp in a build without MPI.
#include "copus/comm/mpi.h"
#include "copus/core/error.h"

namespace copus {

MpiSession::MpiSession(int*, char***) {
  throw CommError("this binary was built without MPI (COPUS_MPI)");
}
MpiSession::~MpiSession() = default;
std::unique_ptr<Communicator> MpiSession::world(std::int64_t) {
  return nullptr;
}
int MpiSession::local_rank() const {
  return 0;
}
int MpiSession::local_size() const {
  return 1;
}
bool MpiSession::processors_differ(int) const {
  return false;
}
void library_all_reduce(Communicator&, TensorView) {
  throw CommError("this binary was built without MPI (COPUS_MPI)");
}
std::string mpi_version() {
  return "none";
}
bool built_with_mpi() {
  return false;
}

}  // namespace copus
