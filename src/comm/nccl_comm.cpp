#include "comm/nccl_communicator.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <exception>

#include "backend/cuda/check.h"
#include "comm/nccl_calls.h"
#include "copus/core/console.h"
#include "copus/core/error.h"

namespace copus {
namespace {

ncclDataType_t type_of(DType dtype) {
  COPUS_CHECK(dtype == DType::f32 || dtype == DType::i32, "reductions are of f32, bf16, i32");
  return dtype == DType::f32 ? ncclFloat32 : ncclInt32;
}

ncclRedOp_t op_of(ReduceOp op) {
  return op == ReduceOp::sum ? ncclSum : (op == ReduceOp::max ? ncclMax : ncclMin);
}

}  // namespace

void NcclGroups::free_all() noexcept {
  std::vector<NcclCommunicator*> groups;
  {
    std::lock_guard const lock(mutex_);
    groups = groups_;
  }
  for (NcclCommunicator* group : groups) group->free_now();
}

// Throws where the group is over, for whatever reason; then all of the rank's are.
void NcclCommunicator::look_after(const char* operation) {
  try {
    check_alive();
    ncclResult_t state = ncclSuccess;
    NCCL_CHECK(ncclCommGetAsyncError(comm_, &state));
    if (state != ncclSuccess && state != ncclInProgress)
      nccl_failed(state, comm_, operation, __FILE__, __LINE__);
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
          "{}: a rank has waited {} s for its peers to join over NCCL; NCCL_DEBUG=INFO says which "
          "network it takes",
          operation, kJoinTime.count());
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
    // An answer, yet the runtime keeps it as an error: the check of this thread's next kernel must
    // not see it.
    cudaGetLastError();
    look_after(operation);
    patience.pause();
  }
}

void NcclCommunicator::await_peers() {
  std::lock_guard const lock(mutex_);
  auto const deadline = std::chrono::steady_clock::now() + kJoinTime;
  settle("joining", &deadline);
  NCCL_CHECK(ncclCommUserRank(comm_, &rank_));
  NCCL_CHECK(ncclCommCount(comm_, &size_));
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

template <class T>
void NcclCommunicator::reduce_values(std::span<T> values, ncclDataType_t type, ReduceOp op) {
  if (size() == 1 || values.empty()) return;
  CUDA_CHECK(cudaSetDevice(backend_.device()));
  std::size_t const bytes = values.size_bytes();
  if (static_cast<std::int64_t>(bytes) > values_.bytes()) {
    pinned_ = cuda::pinned(static_cast<std::int64_t>(bytes));
    values_ = Buffer(backend_, static_cast<std::int64_t>(bytes));
  }
  std::memcpy(pinned_.get(), values.data(), bytes);
  carry_out("all_reduce of values", [&](cudaStream_t stream) {
    CUDA_CHECK(
        cudaMemcpyAsync(values_.data(), pinned_.get(), bytes, cudaMemcpyHostToDevice, stream));
    NCCL_CHECK(ncclAllReduce(values_.data(), values_.data(), values.size(), type, op_of(op), comm_,
                             stream));
  });
  // Not before: NCCL may have put its part into the stream after it returned.
  CUDA_CHECK(
      cudaMemcpyAsync(pinned_.get(), values_.data(), bytes, cudaMemcpyDeviceToHost, stream_.get()));
  CUDA_CHECK(cudaStreamSynchronize(stream_.get()));
  std::memcpy(values.data(), pinned_.get(), bytes);
}

void NcclCommunicator::all_reduce(std::span<double> values, ReduceOp op) {
  if (host_ != nullptr) return host_->all_reduce(values, op);
  reduce_values(values, ncclFloat64, op);
}

void NcclCommunicator::all_reduce(std::span<std::uint64_t> values, ReduceOp op) {
  if (host_ != nullptr) return host_->all_reduce(values, op);
  reduce_values(values, ncclUint64, op);
}

void NcclCommunicator::barrier() {
  if (host_ != nullptr) return host_->barrier();
  std::uint64_t here = 1;
  reduce_values(std::span(&here, 1), ncclUint64, ReduceOp::sum);
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
  // NCCL matches a pair's messages in their order alone: lane after lane, both sides the same.
  auto const by_lane = [](std::span<const Parcel> parcels) {
    std::vector<Parcel> sorted(parcels.begin(), parcels.end());
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const Parcel& a, const Parcel& b) { return a.lane < b.lane; });
    return sorted;
  };
  carry_out("exchange", [&](cudaStream_t stream) {
    NCCL_CHECK(ncclGroupStart());
    for (const Parcel& p : by_lane(sends)) {
      if (p.data.bytes() > 0)
        NCCL_CHECK(ncclSend(p.data.data, static_cast<std::size_t>(p.data.bytes()), ncclUint8,
                            p.peer, comm_, stream));
    }
    for (const Parcel& p : by_lane(receives)) {
      if (p.data.bytes() > 0)
        NCCL_CHECK(ncclRecv(p.data.data, static_cast<std::size_t>(p.data.bytes()), ncclUint8,
                            p.peer, comm_, stream));
    }
    NCCL_CHECK(ncclGroupEnd());
  });
}

std::unique_ptr<Communicator> NcclCommunicator::split(int color, int key) {
  std::unique_ptr<Communicator> host = host_ != nullptr ? host_->split(color, key) : nullptr;
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
  if (color < 0) return nullptr;
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

}  // namespace copus
