// A group of ranks with a GPU each, over NCCL. Communicators are non-blocking: nothing here waits
// in a call of the library, so that a peer that fails can always be noticed.
#pragma once
#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/handles.h"
#include "copus/backend/buffer.h"
#include "copus/comm/communicator.h"
#include "copus/core/error.h"

namespace copus {

class NcclCommunicator;

// What the groups of one rank share: whether one of them has failed. Then all of them are over.
class NcclGroups {
 public:
  void enroll(NcclCommunicator* group) {
    std::lock_guard const lock(mutex_);
    groups_.push_back(group);
  }
  void leave(NcclCommunicator* group) {
    std::lock_guard const lock(mutex_);
    std::erase(groups_, group);
  }
  bool over() const { return over_.load(std::memory_order_acquire); }
  std::string reason() const {
    std::lock_guard const lock(mutex_);
    return reason_;
  }
  void mark(const std::string& reason) noexcept {
    std::lock_guard const lock(mutex_);
    if (!over_.load()) reason_ = reason;
    over_.store(true, std::memory_order_release);
  }
  void free_all() noexcept;

 private:
  mutable std::mutex mutex_;
  std::atomic<bool> over_{false};
  std::string reason_;
  std::vector<NcclCommunicator*> groups_;
};

class NcclCommunicator final : public Communicator {
 public:
  // `comm` may still be in the making; takes it over. `host`: the same ranks, for what is not a
  // tensor; null where NCCL is all that connects them, and then moves that too.
  NcclCommunicator(ncclComm_t comm, std::unique_ptr<Communicator> host, CudaBackend& backend,
                   std::shared_ptr<NcclGroups> groups)
      : comm_(comm),
        host_(std::move(host)),
        backend_(backend),
        groups_(std::move(groups)),
        rank_(host_ != nullptr ? host_->rank() : 0),
        size_(host_ != nullptr ? host_->size() : 1),
        stream_(cuda::open_stream(backend.device())),
        mark_(cuda::open_event()) {
    groups_->enroll(this);
  }
  ~NcclCommunicator() override;
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string transport() const override { return "nccl"; }

  void all_reduce(TensorView x, ReduceOp op) override;
  void all_reduce(std::span<double> values, ReduceOp op) override;
  void all_reduce(std::span<std::uint64_t> values, ReduceOp op) override;
  void reduce_scatter(TensorView out, const TensorView& x) override;
  void all_gather(TensorView out, const TensorView& x) override;
  void broadcast(TensorView x, int root) override;
  void exchange(std::span<const Parcel> sends, std::span<const Parcel> receives) override;
  void barrier() override;
  std::unique_ptr<Communicator> split(int color, int key) override;
  void check_alive() const override {
    if (groups_->over()) throw CommError("stopped: " + groups_->reason());
    if (host_ != nullptr) host_->check_alive();
  }
  void abort(const std::string& reason) noexcept override {
    groups_->mark(reason);
    groups_->free_all();
    if (host_ != nullptr) host_->abort(reason);
  }

  // Waits until the communicator is whole: every rank has come to it.
  void await_peers();
  // Ends it at once, whatever is under way.
  void free_now() noexcept;

 private:
  // One of NCCL's calls from its start to its end: `start(stream)` enqueues.
  template <class Start>
  void carry_out(const char* operation, const Start& start);
  // Returns when NCCL has taken what it was given. `deadline`: none where it is null.
  void settle(const char* operation, const std::chrono::steady_clock::time_point* deadline);
  // Returns when the stream has come to the mark.
  void await_mark(const char* operation);
  void look_after(const char* operation);
  // A copy of a bf16 tensor in f32, valid until the next call: what is summed travels so.
  TensorView widened(const TensorView& x);
  // Values on the host, through the device.
  template <class T>
  void reduce_values(std::span<T> values, ncclDataType_t type, ReduceOp op);

  ncclComm_t comm_;
  std::mutex mutex_;  // whoever is in a call; free_now waits for it to notice
  std::unique_ptr<Communicator> host_;
  CudaBackend& backend_;
  std::shared_ptr<NcclGroups> groups_;
  int rank_, size_;  // of a group without host_: once its peers are there
  cuda::Stream stream_;
  cuda::Event mark_;
  Buffer wide_, values_;
  cuda::Pinned pinned_;  // as large as values_
};

}  // namespace copus
