#include "copus/state/move_state.h"

#include <algorithm>
#include <exception>
#include <map>
#include <memory>
#include <vector>

namespace copus {
namespace {

// A box of one of the three buffers.
struct Block {
  const Copy* copy = nullptr;
  const TensorView* from = nullptr;
  const TensorView* to = nullptr;

  std::int64_t rows() const { return copy->box.size[0]; }
  std::int64_t cols() const { return copy->box.size[1]; }
  const float* source(std::int64_t row) const {
    return from->ptr<float>() + copy->from_offset + row * copy->from_stride;
  }
  float* target(std::int64_t row) const {
    return to->ptr<float>() + copy->to_offset + row * copy->to_stride;
  }
};

// One piece on both sides, and long enough to be worth a message of its own.
bool goes_straight(const Copy& copy) {
  constexpr std::int64_t kWorth = 1 << 14;  // elements
  bool const whole = copy.box.size[0] == 1 ||
                     (copy.from_stride == copy.box.size[1] && copy.to_stride == copy.box.size[1]);
  return whole && copy.box.numel() >= kWorth;
}

// What goes between this rank and one peer, in one direction, in the plan's order: master's boxes,
// then m's, then v's.
struct Stream {
  std::vector<Block> straight, packed;
  // Of `packed`, where the next piece begins.
  std::size_t block = 0;
  std::int64_t row = 0, col = 0;
  std::int64_t left = 0;  // elements from there on

  void add(const Block& next) {
    if (goes_straight(*next.copy)) {
      straight.push_back(next);
    } else {
      packed.push_back(next);
      left += next.copy->box.numel();
    }
  }
  // Calls run(block, row, column, count, elements before it) for the next `size` elements.
  template <class Run>
  void advance(std::int64_t size, const Run& run) {
    for (std::int64_t through = 0; through < size;) {
      const Block& at = packed[block];
      std::int64_t const count = std::min(size - through, at.cols() - col);
      run(at, row, col, count, through);
      through += count;
      col += count;
      if (col < at.cols()) continue;
      col = 0;
      if (++row == at.rows()) row = 0, ++block;
    }
    left -= size;
  }
};
using Streams = std::map<int, Stream>;  // by peer

Streams streams_of(const std::vector<Copy>& copies, bool outgoing, const TrainState& from,
                   const TrainState& to) {
  Streams streams;
  auto const add = [&](const TensorView& source, const TensorView& target) {
    for (const Copy& copy : copies) {
      streams[outgoing ? copy.to : copy.from].add({&copy, &source, &target});
    }
  };
  add(from.master, to.master);
  add(from.m, to.m);
  add(from.v, to.v);
  return streams;
}

void exchange_straight(Communicator& ranks, const Streams& outgoing, const Streams& incoming) {
  std::vector<Parcel> sends, receives;
  for (auto const& [peer, stream] : outgoing) {
    for (const Block& block : stream.straight) {
      // The transport only reads it.
      auto* const data = const_cast<float*>(block.source(0));
      sends.push_back({peer, {data, DType::f32, {block.copy->box.numel()}}});
    }
  }
  for (auto const& [peer, stream] : incoming) {
    for (const Block& block : stream.straight)
      receives.push_back({peer, {block.target(0), DType::f32, {block.copy->box.numel()}}});
  }
  // world: boxes go from those who held them to those who will.
  ranks.exchange(sends, receives);
}

// One buffer for a direction, in equal shares for the peers.
struct Staging {
  std::unique_ptr<float[]> room;  // not cleared: every element is written before it is read
  std::size_t share = 0;          // elements

  Staging(const Streams& streams, int ranks)
      : share(static_cast<std::size_t>(kMoveStagingBytes / 2 / size_of(DType::f32) / ranks)) {
    std::int64_t most = 0;
    for (auto const& [peer, stream] : streams) most += piece_of(stream);
    room = std::make_unique_for_overwrite<float[]>(static_cast<std::size_t>(most));
  }
  std::int64_t piece_of(const Stream& stream) const {
    return std::min(static_cast<std::int64_t>(share), stream.left);
  }
};

// Both ends of a pair cut its stream into the same pieces, so the pairs need not agree on how many.
void exchange_packed(Communicator& ranks, Streams& outgoing, Streams& incoming) {
  Staging out(outgoing, ranks.size()), in(incoming, ranks.size());
  while (true) {
    std::vector<Parcel> sends, receives;
    float* place = out.room.get();
    for (auto& [peer, stream] : outgoing) {
      std::int64_t const size = out.piece_of(stream);
      if (size == 0) continue;
      stream.advance(size, [&](const Block& block, std::int64_t row, std::int64_t col,
                               std::int64_t count, std::int64_t before) {
        std::copy_n(block.source(row) + col, count, place + before);
      });
      sends.push_back({peer, {place, DType::f32, {size}}});
      place += size;
    }
    std::vector<Stream*> arriving;
    place = in.room.get();
    for (auto& [peer, stream] : incoming) {
      std::int64_t const size = in.piece_of(stream);
      if (size == 0) continue;
      receives.push_back({peer, {place, DType::f32, {size}}});
      arriving.push_back(&stream);
      place += size;
    }
    if (sends.empty() && receives.empty()) return;
    // world: as above, for boxes whose rows lie apart.
    ranks.exchange(sends, receives);
    for (std::size_t i = 0; i < arriving.size(); ++i) {
      const float* const piece = receives[i].data.ptr<float>();
      arriving[i]->advance(receives[i].data.numel(),
                           [&](const Block& block, std::int64_t row, std::int64_t col,
                               std::int64_t count, std::int64_t before) {
                             std::copy_n(piece + before, count, block.target(row) + col);
                           });
    }
  }
}

void copy_local(const std::vector<Copy>& copies, const TensorView& from, const TensorView& to) {
  for (const Copy& copy : copies) {
    Block const block{&copy, &from, &to};
    if (goes_straight(copy)) {
      std::copy_n(block.source(0), copy.box.numel(), block.target(0));
      continue;
    }
    for (std::int64_t r = 0; r < block.rows(); ++r)
      std::copy_n(block.source(r), block.cols(), block.target(r));
  }
}

std::int64_t bytes_of(const std::vector<Copy>& copies) {
  std::int64_t elements = 0;
  for (const Copy& copy : copies) elements += copy.box.numel();
  return 3 * elements * size_of(DType::f32);
}

}  // namespace

MovedBytes move_state(Communicator& ranks, const RankTransfer& transfer, const TrainState& from,
                      const TrainState& to, const std::function<void()>& before_local) {
  Streams outgoing = streams_of(transfer.sends, true, from, to);
  Streams incoming = streams_of(transfer.recvs, false, from, to);
  exchange_straight(ranks, outgoing, incoming);
  // A local failure must not leave the peers alone in an exchange.
  std::exception_ptr failure;
  try {
    if (before_local) before_local();
  } catch (...) {
    failure = std::current_exception();
  }
  exchange_packed(ranks, outgoing, incoming);
  if (failure) std::rethrow_exception(failure);
  copy_local(transfer.local, from.master, to.master);
  copy_local(transfer.local, from.m, to.m);
  copy_local(transfer.local, from.v, to.v);
  return {bytes_of(transfer.sends), bytes_of(transfer.local)};
}

}  // namespace copus
