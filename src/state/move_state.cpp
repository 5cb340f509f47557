#include "copus/state/move_state.h"

#include <algorithm>
#include <map>
#include <vector>

namespace copus {
namespace {

using Staged =
    std::map<int, std::vector<float>>;  // by peer: its boxes, row by row, in the plan's order

std::int64_t elements_from(const std::vector<Copy>& copies, int peer) {
  std::int64_t n = 0;
  for (const Copy& copy : copies) {
    if (copy.from == peer) n += copy.box.numel();
  }
  return n;
}

void pack(const Copy& copy, const float* from, std::vector<float>& out) {
  for (std::int64_t r = 0; r < copy.box.size[0]; ++r) {
    const float* const row = from + copy.from_offset + r * copy.from_stride;
    out.insert(out.end(), row, row + copy.box.size[1]);
  }
}

// Returns where the next box begins.
const float* unpack(const Copy& copy, const float* in, float* to) {
  for (std::int64_t r = 0; r < copy.box.size[0]; ++r) {
    std::copy_n(in, copy.box.size[1], to + copy.to_offset + r * copy.to_stride);
    in += copy.box.size[1];
  }
  return in;
}

std::vector<Parcel> parcels_of(Staged& staged) {
  std::vector<Parcel> parcels;
  for (auto& [peer, values] : staged) {
    parcels.push_back(
        {peer, {values.data(), DType::f32, {static_cast<std::int64_t>(values.size())}}});
  }
  return parcels;
}

}  // namespace

void move_state(Communicator& ranks, const RankTransfer& transfer, const TensorView& from,
                const TensorView& to) {
  Staged outgoing, incoming;
  for (const Copy& copy : transfer.sends) pack(copy, from.ptr<float>(), outgoing[copy.to]);
  for (const Copy& copy : transfer.recvs) {
    std::vector<float>& room = incoming[copy.from];
    if (room.empty())
      room.resize(static_cast<std::size_t>(elements_from(transfer.recvs, copy.from)));
  }
  // world: boxes go from those who held them to those who will.
  ranks.exchange(parcels_of(outgoing), parcels_of(incoming));
  for (auto const& [peer, values] : incoming) {
    const float* in = values.data();
    for (const Copy& copy : transfer.recvs) {
      if (copy.from == peer) in = unpack(copy, in, to.ptr<float>());
    }
  }
  for (const Copy& copy : transfer.local) {
    for (std::int64_t r = 0; r < copy.box.size[0]; ++r) {
      std::copy_n(from.ptr<float>() + copy.from_offset + r * copy.from_stride, copy.box.size[1],
                  to.ptr<float>() + copy.to_offset + r * copy.to_stride);
    }
  }
}

}  // namespace copus
