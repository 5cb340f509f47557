#include "copus/comm/staged.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "comm/message_stream.h"
#include "copus/core/error.h"

namespace copus {
namespace {

class StagedCommunicator final : public Communicator {
 public:
  StagedCommunicator(std::unique_ptr<Communicator> inner, Backend& backend,
                     std::int64_t staging_bytes)
      : inner_(std::move(inner)),
        backend_(backend),
        copies_(backend.host_copies()),
        staging_bytes_(staging_bytes) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string transport() const override { return inner_->transport() + ", staged"; }

  void all_reduce(TensorView x, ReduceOp op) override;
  void all_reduce(std::span<double> values, ReduceOp op) override {
    inner_->all_reduce(values, op);
  }
  void all_reduce(std::span<std::uint64_t> values, ReduceOp op) override {
    inner_->all_reduce(values, op);
  }
  void reduce_scatter(TensorView out, const TensorView& x) override;
  void all_gather(TensorView out, const TensorView& x) override;
  void broadcast(TensorView x, int root) override;
  void exchange(std::span<const Parcel> sends, std::span<const Parcel> receives) override;
  void barrier() override { inner_->barrier(); }
  std::unique_ptr<Communicator> split(int color, int key) override {
    auto group = inner_->split(color, key);
    if (group == nullptr) return nullptr;
    return std::make_unique<StagedCommunicator>(std::move(group), backend_, staging_bytes_);
  }
  void check_alive() const override { inner_->check_alive(); }
  void abort(const std::string& reason) noexcept override { inner_->abort(reason); }

 private:
  // body(first element, count) over `numel` elements of which `copies` are staged at a time.
  template <class Body>
  void in_pieces(std::int64_t numel, DType dtype, std::int64_t copies, const Body& body) {
    if (numel == 0) return;
    std::int64_t const most = std::max<std::int64_t>(1, staging_bytes_ / size_of(dtype) / copies);
    room_ = copies_->room(std::min(most, numel) * copies * size_of(dtype));
    copies_->follow();
    for (std::int64_t at = 0; at < numel; at += most) body(at, std::min(most, numel - at));
  }
  // `count` elements of the room from its `index`-th stretch of as many on.
  TensorView stretch(DType dtype, std::int64_t count, std::int64_t index = 0) const {
    return {room_ + index * count * size_of(dtype), dtype, {count}};
  }
  void down(const TensorView& host, const TensorView& x, std::int64_t first) {
    copies_->download(host.data, x.ptr<std::byte>() + first * size_of(x.dtype), host.bytes());
  }
  void up(const TensorView& x, std::int64_t first, const TensorView& host) {
    copies_->upload(x.ptr<std::byte>() + first * size_of(x.dtype), host.data, host.bytes());
  }
  std::int64_t load(MessageStreams& outgoing, std::int64_t share, std::byte* place,
                    std::vector<Parcel>& sends);

  std::unique_ptr<Communicator> inner_;
  Backend& backend_;
  std::unique_ptr<HostCopies> copies_;
  std::int64_t staging_bytes_;
  std::byte* room_ = nullptr;
};

void StagedCommunicator::all_reduce(TensorView x, ReduceOp op) {
  COPUS_CHECK(x.contiguous(), "collectives take contiguous tensors");
  if (size() == 1) return;
  in_pieces(x.numel(), x.dtype, 1, [&](std::int64_t at, std::int64_t count) {
    TensorView const host = stretch(x.dtype, count);
    down(host, x, at);
    copies_->wait();
    inner_->all_reduce(host, op);
    up(x, at, host);
    copies_->wait();
  });
}

// A piece has the same stretch of every rank's part.
void StagedCommunicator::reduce_scatter(TensorView out, const TensorView& x) {
  COPUS_CHECK(out.contiguous() && x.contiguous() && x.numel() == out.numel() * size() &&
                  out.dtype == x.dtype,
              "reduce_scatter takes size() equal pieces");
  if (size() == 1 && out.data == x.data) return;
  in_pieces(out.numel(), x.dtype, size(), [&](std::int64_t at, std::int64_t count) {
    for (int r = 0; r < size(); ++r) down(stretch(x.dtype, count, r), x, out.numel() * r + at);
    copies_->wait();
    TensorView const own = stretch(x.dtype, count, rank());
    inner_->reduce_scatter(own, {room_, x.dtype, {count * size()}});
    up(out, at, own);
    copies_->wait();
  });
}

void StagedCommunicator::all_gather(TensorView out, const TensorView& x) {
  COPUS_CHECK(out.contiguous() && x.contiguous() && out.numel() == x.numel() * size() &&
                  out.dtype == x.dtype,
              "all_gather makes size() equal pieces");
  auto* const mine = out.ptr<std::byte>() + x.bytes() * rank();
  if (size() == 1 && mine == x.data) return;
  in_pieces(x.numel(), x.dtype, size(), [&](std::int64_t at, std::int64_t count) {
    TensorView const own = stretch(x.dtype, count, rank());
    down(own, x, at);
    copies_->wait();
    inner_->all_gather({room_, x.dtype, {count * size()}}, own);
    for (int r = 0; r < size(); ++r) {
      if (r != rank() || mine != x.data) up(out, x.numel() * r + at, stretch(x.dtype, count, r));
    }
    copies_->wait();
  });
}

void StagedCommunicator::broadcast(TensorView x, int root) {
  COPUS_CHECK(x.contiguous() && root >= 0 && root < size(),
              "broadcast takes a contiguous tensor and a rank of the group");
  if (size() == 1) return;
  in_pieces(x.numel(), x.dtype, 1, [&](std::int64_t at, std::int64_t count) {
    TensorView const host = stretch(x.dtype, count);
    if (rank() == root) down(host, x, at);
    copies_->wait();
    inner_->broadcast(host, root);
    if (rank() != root) up(x, at, host);
    copies_->wait();
  });
}

// The next piece for each peer, one behind the other at `place`; returns how many bytes.
std::int64_t StagedCommunicator::load(MessageStreams& outgoing, std::int64_t share,
                                      std::byte* place, std::vector<Parcel>& sends) {
  std::int64_t filled = 0;
  for (auto& [peer, stream] : outgoing) {
    std::int64_t const bytes = std::min(share, stream.left());
    if (bytes == 0) continue;
    std::byte* const here = place + filled;
    stream.advance(bytes, [&](std::byte* device, std::int64_t count, std::int64_t before) {
      copies_->download(here + before, device, count);
    });
    sends.push_back({peer, {here, DType::u8, {bytes}}});
    filled += bytes;
  }
  return filled;
}

// Both ends of a pair cut what is between them into the same shares, and each round has one share
// of every pair that is not through: pairs need not agree on the number of rounds.
void StagedCommunicator::exchange(std::span<const Parcel> sends, std::span<const Parcel> receives) {
  for (std::span<const Parcel> const parcels : {sends, receives}) {
    for (const Parcel& parcel : parcels)
      COPUS_CHECK(parcel.data.contiguous(), "messages are contiguous");
  }
  MessageStreams outgoing = streams_of(sends), incoming = streams_of(receives);
  std::int64_t const share = std::max<std::int64_t>(1, staging_bytes_ / 2 / size());
  std::int64_t most = 0;
  for (MessageStreams* streams : {&outgoing, &incoming}) {
    for (auto const& [peer, stream] : *streams) most += std::min(share, stream.left());
  }
  if (most == 0) return;
  room_ = copies_->room(most);
  copies_->follow();
  while (true) {
    std::vector<Parcel> out, in;
    std::byte* place = room_ + load(outgoing, share, room_, out);
    for (auto const& [peer, stream] : incoming) {
      std::int64_t const bytes = std::min(share, stream.left());
      if (bytes == 0) continue;
      in.push_back({peer, {place, DType::u8, {bytes}}});
      place += bytes;
    }
    if (out.empty() && in.empty()) return;
    copies_->wait();
    inner_->exchange(out, in);
    for (const Parcel& parcel : in) {
      incoming[parcel.peer].advance(
          parcel.data.bytes(), [&](std::byte* device, std::int64_t count, std::int64_t before) {
            copies_->upload(device, parcel.data.ptr<std::byte>() + before, count);
          });
    }
    copies_->wait();
  }
}

}  // namespace

std::unique_ptr<Communicator> stage_through_host(Communicator& world, Backend& backend,
                                                 std::int64_t staging_bytes) {
  auto ranks = world.split(0, world.rank());
  if (backend.on_host()) return ranks;
  return std::make_unique<StagedCommunicator>(std::move(ranks), backend, staging_bytes);
}

}  // namespace copus
