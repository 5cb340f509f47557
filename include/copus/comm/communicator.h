// SEAM 2: a group of ranks that move tensors among each other. One implementation a transport:
// thread, mpi, nccl.
//
// Every call is collective over the group but exchange, which pairs up by peer and order. Tensors
// are contiguous and in the memory that the group was made for: the host's, or that of each rank's
// device (comm/rank_device.h); spans are on the host. Counts are int64 and may pass 2^31. A group
// of one is legal and does nothing. A rank that fails calls abort: its peers then throw CommError
// from whatever they wait in (thread, nccl), or the whole job ends within seconds (mpi).
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "copus/core/tensor.h"

namespace copus {

enum class ReduceOp : std::uint8_t { sum, max, min };

// A tensor to or from a peer (rank in the group). Messages of one lane are matched among
// themselves.
struct Parcel {
  int peer = 0;
  TensorView data;
  int lane = 0;  // 0 .. kLanes - 1
};
inline constexpr int kLanes = 4;

// Messages that have been started: they move on while the rank computes.
class Transfer {
 public:
  // Takes back what has not met its counterpart. Only where the rank fails: who lives waits.
  virtual ~Transfer() = default;
  // Returns when all received data is there and all sent buffers may be reused. Once.
  virtual void wait() = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string transport() const = 0;

  // x becomes the reduction over all ranks' x, the same bits on each; f32, i32, and bf16, which is
  // summed in f32 and rounded once.
  virtual void all_reduce(TensorView x, ReduceOp op) = 0;
  // The same for values on the host: the step's scalars.
  virtual void all_reduce(std::span<double> values, ReduceOp op) = 0;
  virtual void all_reduce(std::span<std::uint64_t> values, ReduceOp op) = 0;
  // x has size() equal pieces; out becomes the sum over ranks of piece rank(). out may be that
  // piece of x.
  virtual void reduce_scatter(TensorView out, const TensorView& x) = 0;
  // out has size() equal pieces; piece r becomes rank r's x. x may be the own piece of out.
  virtual void all_gather(TensorView out, const TensorView& x) = 0;
  virtual void broadcast(TensorView x, int root) = 0;
  // Sends and receives as one call that cannot deadlock on their order: the n-th message from a to
  // b meets the n-th that b expects from a on that lane. Returns when all received data is there
  // and all sent buffers may be reused. Any dtype.
  virtual void exchange(std::span<const Parcel> sends, std::span<const Parcel> receives) = 0;
  // An exchange that is only started. In which order ranks may start and wait without a deadlock is
  // theirs to know; the transfer ends before the group and before anything else with the buffers.
  // Where there is none (can_start) the ranks exchange: NCCL and whatever stages through the host
  // carry out one call after the other, so that a message which comes late would hold up those
  // started behind it.
  virtual bool can_start() const { return false; }
  virtual std::unique_ptr<Transfer> start(std::span<const Parcel> sends,
                                          std::span<const Parcel> receives);
  virtual void barrier() = 0;

  // The ranks that give the same color form a new group, ordered by (key, rank). A negative color
  // joins none: null.
  virtual std::unique_ptr<Communicator> split(int color, int key) = 0;
  // Throws CommError where the group has been aborted: for a rank that waits for its peers outside
  // of these calls. Over MPI an abort ends the process, and this does nothing.
  virtual void check_alive() const = 0;
  // Ends this group and every group split from the same world. Callable from any state; says why to
  // every peer.
  virtual void abort(const std::string& reason) noexcept = 0;
};

// The group of one.
std::unique_ptr<Communicator> make_single_communicator();

// Runs body(rank, communicator) on `size` threads of this process and returns when all have ended.
// When bodies throw, the cause is rethrown here: that of the lowest rank which did not merely
// follow from another's failure.
void run_ranks(int size, const std::function<void(int, Communicator&)>& body);

}  // namespace copus
