// Ranks with a GPU each over NCCL. Communicators are non-blocking: nothing here waits in a call of
// the library, so that a peer that fails can always be noticed.
#include "copus/comm/nccl.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "backend/cuda/check.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/handles.h"
#include "copus/backend/buffer.h"
#include "copus/comm/broadcast.h"
#include "copus/core/console.h"
#include "copus/core/error.h"

namespace copus {
namespace {

// All ranks have come together, or something is wrong with the network between them.
constexpr std::chrono::seconds kJoinTime{180};

void fail(ncclResult_t result, ncclComm_t comm, const char* call, const char* file, int line) {
  throw CommError(fmt::format("{}:{}: {} failed: {} ({})", file, line, call,
                              ncclGetErrorString(result), ncclGetLastError(comm)));
}
#define NCCL_CHECK(call)                                             \
  do {                                                               \
    ncclResult_t const nccl_result = (call);                         \
    if (nccl_result != ncclSuccess && nccl_result != ncclInProgress) \
      fail(nccl_result, nullptr, #call, __FILE__, __LINE__);         \
  } while (false)

ncclDataType_t type_of(DType dtype) {
  COPUS_CHECK(dtype == DType::f32 || dtype == DType::i32, "reductions are of f32, bf16, i32");
  return dtype == DType::f32 ? ncclFloat32 : ncclInt32;
}

ncclRedOp_t op_of(ReduceOp op) {
  return op == ReduceOp::sum ? ncclSum : (op == ReduceOp::max ? ncclMax : ncclMin);
}

ncclConfig_t config_of_ours() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

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
  // `comm` may still be in the making; takes it over.
  NcclCommunicator(ncclComm_t comm, std::unique_ptr<Communicator> host, CudaBackend& backend,
                   std::shared_ptr<NcclGroups> groups)
      : comm_(comm),
        host_(std::move(host)),
        backend_(backend),
        groups_(std::move(groups)),
        stream_(cuda::open_stream(backend.device())),
        mark_(cuda::open_event()) {
    groups_->enroll(this);
  }
  ~NcclCommunicator() override;
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  std::string transport() const override { return "nccl"; }

  void all_reduce(TensorView x, ReduceOp op) override;
  void all_reduce(std::span<double> values, ReduceOp op) override { host_->all_reduce(values, op); }
  void all_reduce(std::span<std::uint64_t> values, ReduceOp op) override {
    host_->all_reduce(values, op);
  }
  void reduce_scatter(TensorView out, const TensorView& x) override;
  void all_gather(TensorView out, const TensorView& x) override;
  void broadcast(TensorView x, int root) override;
  void exchange(std::span<const Parcel> sends, std::span<const Parcel> receives) override;
  void barrier() override { host_->barrier(); }
  std::unique_ptr<Communicator> split(int color, int key) override;
  void check_alive() const override {
    if (groups_->over()) throw CommError("stopped: " + groups_->reason());
    host_->check_alive();
  }
  void abort(const std::string& reason) noexcept override {
    groups_->mark(reason);
    groups_->free_all();
    host_->abort(reason);
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

  ncclComm_t comm_;
  std::mutex mutex_;  // whoever is in a call; free_now waits for it to notice
  std::unique_ptr<Communicator> host_;
  CudaBackend& backend_;
  std::shared_ptr<NcclGroups> groups_;
  cuda::Stream stream_;
  cuda::Event mark_;
  Buffer wide_;
};

void NcclGroups::free_all() noexcept {
  std::vector<NcclCommunicator*> groups;
  {
    std::lock_guard const lock(mutex_);
    groups = groups_;
  }
  for (NcclCommunicator* group : groups) group->free_now();
}

// A short busy wait, then turns of sleep: the core may be another rank's.
class Patience {
 public:
  void pause() {
    constexpr int kBusyLooks = 2000;
    if (++looks_ < kBusyLooks) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

 private:
  int looks_ = 0;
};

// Throws where the group is over, for whatever reason; then all of the rank's are.
void NcclCommunicator::look_after(const char* operation) {
  try {
    check_alive();
    ncclResult_t state = ncclSuccess;
    NCCL_CHECK(ncclCommGetAsyncError(comm_, &state));
    if (state != ncclSuccess && state != ncclInProgress)
      fail(state, comm_, operation, __FILE__, __LINE__);
  } catch (const std::exception& e) {
    groups_->mark(e.what());
    throw;
  }
}

void NcclCommunicator::settle(const char* operation,
                              const std::chrono::steady_clock::time_point* deadline) {
  Patience patience;
  while (true) {
    look_after(operation);
    ncclResult_t state = ncclSuccess;
    NCCL_CHECK(ncclCommGetAsyncError(comm_, &state));
    if (state == ncclSuccess) return;
    if (deadline != nullptr && std::chrono::steady_clock::now() > *deadline) {
      std::string const text = fmt::format(
          "{}: rank {} of {} has waited {} s for its peers to join over NCCL; NCCL_DEBUG=INFO says "
          "which network it takes",
          operation, rank(), size(), kJoinTime.count());
      groups_->mark(text);
      throw CommError(text);
    }
    patience.pause();
  }
}

void NcclCommunicator::await_mark(const char* operation) {
  Patience patience;
  while (true) {
    cudaError_t const state = cudaEventQuery(mark_.get());
    if (state == cudaSuccess) return;
    if (state != cudaErrorNotReady) CUDA_CHECK(state);
    look_after(operation);
    patience.pause();
  }
}

void NcclCommunicator::await_peers() {
  std::lock_guard const lock(mutex_);
  auto const deadline = std::chrono::steady_clock::now() + kJoinTime;
  settle("joining", &deadline);
}

template <class Start>
void NcclCommunicator::carry_out(const char* operation, const Start& start) {
  std::lock_guard const lock(mutex_);
  look_after(operation);
  CUDA_CHECK(cudaSetDevice(backend_.device()));  // the thread may never have used it
  // Behind what the backend was given so far.
  CUDA_CHECK(cudaEventRecord(mark_.get(), backend_.stream()));
  CUDA_CHECK(cudaStreamWaitEvent(stream_.get(), mark_.get()));
  start(stream_.get());
  settle(operation, nullptr);
  CUDA_CHECK(cudaEventRecord(mark_.get(), stream_.get()));
  await_mark(operation);
}

TensorView NcclCommunicator::widened(const TensorView& x) {
  CUDA_CHECK(cudaSetDevice(backend_.device()));
  std::int64_t const bytes = x.numel() * size_of(DType::f32);
  if (bytes > wide_.bytes()) wide_ = Buffer(backend_, bytes);
  TensorView const wide(wide_.data(), DType::f32, {x.numel()});
  backend_.copy(wide, x.reshape({x.numel()}));
  return wide;
}

void NcclCommunicator::all_reduce(TensorView x, ReduceOp op) {
  COPUS_CHECK(x.contiguous(), "collectives take contiguous tensors");
  if (size() == 1 || x.numel() == 0) return;
  if (x.dtype == DType::bf16) {
    TensorView const wide = widened(x);
    all_reduce(wide, op);
    backend_.copy(x.reshape({x.numel()}), wide);
    return;
  }
  carry_out("all_reduce", [&](cudaStream_t stream) {
    NCCL_CHECK(ncclAllReduce(x.data, x.data, static_cast<std::size_t>(x.numel()), type_of(x.dtype),
                             op_of(op), comm_, stream));
  });
}

void NcclCommunicator::reduce_scatter(TensorView out, const TensorView& x) {
  COPUS_CHECK(out.contiguous() && x.contiguous() && x.numel() == out.numel() * size() &&
                  out.dtype == x.dtype,
              "reduce_scatter takes size() equal pieces");
  if (x.numel() == 0 || (size() == 1 && out.data == x.data)) return;
  if (x.dtype == DType::bf16) {
    TensorView const wide = widened(x), own = wide.slice(0, out.numel() * rank(), out.numel());
    reduce_scatter(own, wide);
    backend_.copy(out.reshape({out.numel()}), own);
    return;
  }
  carry_out("reduce_scatter", [&](cudaStream_t stream) {
    NCCL_CHECK(ncclReduceScatter(x.data, out.data, static_cast<std::size_t>(out.numel()),
                                 type_of(x.dtype), ncclSum, comm_, stream));
  });
}

void NcclCommunicator::all_gather(TensorView out, const TensorView& x) {
  COPUS_CHECK(out.contiguous() && x.contiguous() && out.numel() == x.numel() * size() &&
                  out.dtype == x.dtype,
              "all_gather makes size() equal pieces");
  if (x.numel() == 0 || (size() == 1 && out.data == x.data)) return;
  carry_out("all_gather", [&](cudaStream_t stream) {
    NCCL_CHECK(ncclAllGather(x.data, out.data, static_cast<std::size_t>(x.bytes()), ncclUint8,
                             comm_, stream));
  });
}

void NcclCommunicator::broadcast(TensorView x, int root) {
  COPUS_CHECK(x.contiguous() && root >= 0 && root < size(),
              "broadcast takes a contiguous tensor and a rank of the group");
  if (size() == 1 || x.numel() == 0) return;
  carry_out("broadcast", [&](cudaStream_t stream) {
    NCCL_CHECK(ncclBroadcast(x.data, x.data, static_cast<std::size_t>(x.bytes()), ncclUint8, root,
                             comm_, stream));
  });
}

void NcclCommunicator::exchange(std::span<const Parcel> sends, std::span<const Parcel> receives) {
  std::int64_t bytes = 0;
  for (std::span<const Parcel> const parcels : {sends, receives}) {
    for (const Parcel& parcel : parcels) {
      COPUS_CHECK(parcel.data.contiguous(), "messages are contiguous");
      bytes += parcel.data.bytes();
    }
  }
  if (bytes == 0) return;
  carry_out("exchange", [&](cudaStream_t stream) {
    NCCL_CHECK(ncclGroupStart());
    for (const Parcel& p : sends) {
      if (p.data.bytes() > 0)
        NCCL_CHECK(ncclSend(p.data.data, static_cast<std::size_t>(p.data.bytes()), ncclUint8,
                            p.peer, comm_, stream));
    }
    for (const Parcel& p : receives) {
      if (p.data.bytes() > 0)
        NCCL_CHECK(ncclRecv(p.data.data, static_cast<std::size_t>(p.data.bytes()), ncclUint8,
                            p.peer, comm_, stream));
    }
    NCCL_CHECK(ncclGroupEnd());
  });
}

std::unique_ptr<Communicator> NcclCommunicator::split(int color, int key) {
  std::unique_ptr<Communicator> host = host_->split(color, key);
  ncclComm_t made = nullptr;
  {
    std::lock_guard const lock(mutex_);
    look_after("split");
    CUDA_CHECK(cudaSetDevice(backend_.device()));
    ncclConfig_t config = config_of_ours();
    auto const deadline = std::chrono::steady_clock::now() + kJoinTime;
    NCCL_CHECK(ncclCommSplit(comm_, color < 0 ? NCCL_SPLIT_NOCOLOR : color, key, &made, &config));
    settle("split", &deadline);  // until then `made` may be empty
  }
  if (host == nullptr) return nullptr;
  auto group = std::make_unique<NcclCommunicator>(made, std::move(host), backend_, groups_);
  group->await_peers();
  return group;
}

void NcclCommunicator::free_now() noexcept {
  std::lock_guard const lock(mutex_);
  if (comm_ != nullptr) ncclCommAbort(comm_);
  comm_ = nullptr;
}

// All calls are over, so that the end needs no peer; unless something has failed, or is unwinding.
NcclCommunicator::~NcclCommunicator() {
  groups_->leave(this);
  cudaSetDevice(backend_.device());
  if (comm_ == nullptr) return;
  if (groups_->over() || std::uncaught_exceptions() > 0) {
    free_now();
    return;
  }
  try {
    std::lock_guard const lock(mutex_);
    auto const deadline = std::chrono::steady_clock::now() + kJoinTime;
    NCCL_CHECK(ncclCommFinalize(comm_));
    settle("ending a group", &deadline);
    NCCL_CHECK(ncclCommDestroy(comm_));
  } catch (const std::exception& e) {
    standard_error().write(
        fmt::format("warning: a group of NCCL did not end in order: {}\n", e.what()));
    ncclCommAbort(comm_);
  }
}

}  // namespace

std::string nccl_problem() {
  return "";
}

std::string nccl_version() {
  int version = 0;
  if (ncclGetVersion(&version) != ncclSuccess) return "unknown";
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

std::unique_ptr<Communicator> join_nccl(Communicator& world, Backend& backend) {
  auto* const cuda_backend = dynamic_cast<CudaBackend*>(&backend);
  COPUS_CHECK(cuda_backend != nullptr, "NCCL moves tensors between GPUs");
  CUDA_CHECK(cudaSetDevice(cuda_backend->device()));
  ncclUniqueId id{};
  if (world.rank() == 0) NCCL_CHECK(ncclGetUniqueId(&id));
  broadcast_value(world, id, 0);  // world: NCCL's name for the job
  auto host = world.split(0, world.rank());
  ncclConfig_t config = config_of_ours();
  ncclComm_t comm = nullptr;
  NCCL_CHECK(ncclCommInitRankConfig(&comm, world.size(), id, world.rank(), &config));
  auto group = std::make_unique<NcclCommunicator>(comm, std::move(host), *cuda_backend,
                                                  std::make_shared<NcclGroups>());
  group->await_peers();
  return group;
}

}  // namespace copus
