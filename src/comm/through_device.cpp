#include "copus/comm/through_device.h"

#include <utility>
#include <vector>

#include "copus/backend/buffer.h"
#include "copus/core/error.h"

namespace copus {
namespace {

class ThroughDevice final : public Communicator {
 public:
  ThroughDevice(std::unique_ptr<Communicator> inner, Backend& backend)
      : inner_(std::move(inner)), backend_(backend) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string transport() const override { return inner_->transport(); }

  void all_reduce(TensorView x, ReduceOp op) override {
    COPUS_CHECK(x.contiguous(), "collectives take contiguous tensors");
    if (size() == 1 || x.numel() == 0) return;
    TensorView const there = place(x, room(x.bytes()));
    backend_.upload(there, x.data);
    inner_->all_reduce(there, op);
    backend_.download(x.data, there);
  }
  void all_reduce(std::span<double> values, ReduceOp op) override {
    inner_->all_reduce(values, op);
  }
  void all_reduce(std::span<std::uint64_t> values, ReduceOp op) override {
    inner_->all_reduce(values, op);
  }
  void reduce_scatter(TensorView out, const TensorView& x) override {
    COPUS_CHECK(out.contiguous() && x.contiguous() && x.numel() == out.numel() * size() &&
                    out.dtype == x.dtype,
                "reduce_scatter takes size() equal pieces");
    if (x.numel() == 0) return;
    TensorView const whole = place(x, room(x.bytes()));
    TensorView const own = place(out, whole.ptr<std::byte>() + out.bytes() * rank());
    backend_.upload(whole, x.data);
    inner_->reduce_scatter(own, whole);
    backend_.download(out.data, own);
  }
  void all_gather(TensorView out, const TensorView& x) override {
    COPUS_CHECK(out.contiguous() && x.contiguous() && out.numel() == x.numel() * size() &&
                    out.dtype == x.dtype,
                "all_gather makes size() equal pieces");
    if (x.numel() == 0) return;
    TensorView const whole = place(out, room(out.bytes()));
    TensorView const own = place(x, whole.ptr<std::byte>() + x.bytes() * rank());
    backend_.upload(own, x.data);
    inner_->all_gather(whole, own);
    backend_.download(out.data, whole);
  }
  void broadcast(TensorView x, int root) override {
    COPUS_CHECK(x.contiguous() && root >= 0 && root < size(),
                "broadcast takes a contiguous tensor and a rank of the group");
    if (size() == 1 || x.numel() == 0) return;
    TensorView const there = place(x, room(x.bytes()));
    if (rank() == root) backend_.upload(there, x.data);
    inner_->broadcast(there, root);
    if (rank() != root) backend_.download(x.data, there);
  }
  void exchange(std::span<const Parcel> sends, std::span<const Parcel> receives) override;
  void barrier() override { inner_->barrier(); }
  std::unique_ptr<Communicator> split(int color, int key) override {
    auto group = inner_->split(color, key);
    if (group == nullptr) return nullptr;
    return std::make_unique<ThroughDevice>(std::move(group), backend_);
  }
  void check_alive() const override { inner_->check_alive(); }
  void abort(const std::string& reason) noexcept override { inner_->abort(reason); }

 private:
  std::byte* room(std::int64_t bytes) {
    if (bytes > room_.bytes()) room_ = Buffer(backend_, bytes);
    return room_.data();
  }
  static TensorView place(TensorView x, std::byte* data) {
    x.data = data;
    return x;
  }

  std::unique_ptr<Communicator> inner_;
  Backend& backend_;
  Buffer room_;
};

void ThroughDevice::exchange(std::span<const Parcel> sends, std::span<const Parcel> receives) {
  std::int64_t bytes = 0;
  for (std::span<const Parcel> const parcels : {sends, receives}) {
    for (const Parcel& parcel : parcels) {
      COPUS_CHECK(parcel.data.contiguous(), "messages are contiguous");
      bytes += Arena::aligned(parcel.data.bytes());
    }
  }
  if (bytes == 0) return;
  std::byte* next = room(bytes);
  auto const placed = [&](std::span<const Parcel> parcels) {
    std::vector<Parcel> there;
    for (const Parcel& parcel : parcels) {
      there.push_back({parcel.peer, place(parcel.data, next)});
      next += Arena::aligned(parcel.data.bytes());
    }
    return there;
  };
  std::vector<Parcel> const out = placed(sends), in = placed(receives);
  for (std::size_t i = 0; i < out.size(); ++i) backend_.upload(out[i].data, sends[i].data.data);
  inner_->exchange(out, in);
  for (std::size_t i = 0; i < in.size(); ++i) backend_.download(receives[i].data.data, in[i].data);
}

}  // namespace

std::unique_ptr<Communicator> reach_through_device(std::unique_ptr<Communicator> inner,
                                                   Backend& backend) {
  return std::make_unique<ThroughDevice>(std::move(inner), backend);
}

}  // namespace copus
