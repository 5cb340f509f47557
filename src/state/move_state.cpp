#include "copus/state/move_state.h"

#include <algorithm>
#include <exception>
#include <map>
#include <vector>

#include "copus/backend/buffer.h"

namespace copus {
namespace {

TensorView rectangle(float* data, std::int64_t rows, std::int64_t cols, std::int64_t stride) {
  TensorView view(data, DType::f32, {rows, cols});
  view.stride[0] = stride;
  return view;
}

// A box of one of the three buffers.
struct Block {
  const Copy* copy = nullptr;
  const TensorView* from = nullptr;
  const TensorView* to = nullptr;

  std::int64_t rows() const { return copy->box.size[0]; }
  std::int64_t cols() const { return copy->box.size[1]; }
  // A rectangle of it, where it was and where it goes.
  TensorView source(std::int64_t row, std::int64_t col, std::int64_t rows,
                    std::int64_t cols) const {
    return rectangle(from->ptr<float>() + copy->from_offset + row * copy->from_stride + col, rows,
                     cols, copy->from_stride);
  }
  TensorView target(std::int64_t row, std::int64_t col, std::int64_t rows,
                    std::int64_t cols) const {
    return rectangle(to->ptr<float>() + copy->to_offset + row * copy->to_stride + col, rows, cols,
                     copy->to_stride);
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

  void add(const Block& next, bool may_go_straight) {
    if (may_go_straight && goes_straight(*next.copy)) {
      straight.push_back(next);
    } else {
      packed.push_back(next);
      left += next.copy->box.numel();
    }
  }
  // Calls run(block, row, column, rows, columns, elements before them) for the next `size`
  // elements: rows that are whole in one rectangle, the parts of rows at its ends by themselves.
  template <class Run>
  void advance(std::int64_t size, const Run& run) {
    for (std::int64_t through = 0; through < size;) {
      const Block& at = packed[block];
      std::int64_t const room = size - through;
      bool const part = col > 0 || room < at.cols();
      std::int64_t const rows = part ? 1 : std::min(room / at.cols(), at.rows() - row);
      std::int64_t const cols = part ? std::min(room, at.cols() - col) : at.cols();
      run(at, row, col, rows, cols, through);
      through += rows * cols;
      col += cols;
      if (col < at.cols()) continue;
      col = 0;
      row += rows;
      if (row == at.rows()) row = 0, ++block;
    }
    left -= size;
  }
};
using Streams = std::map<int, Stream>;  // by peer

// Where the new state lies: memory of the host is not always where tensors can be sent to.
struct Destination {
  Backend& backend;
  bool far = false;  // it lies on the host, and the backend's memory does not
};

Streams streams_of(const std::vector<Copy>& copies, bool outgoing, const TrainState& from,
                   const TrainState& to, bool may_go_straight) {
  Streams streams;
  auto const add = [&](const TensorView& source, const TensorView& target) {
    for (const Copy& copy : copies)
      streams[outgoing ? copy.to : copy.from].add({&copy, &source, &target}, may_go_straight);
  };
  add(from.master, to.master);
  add(from.m, to.m);
  add(from.v, to.v);
  return streams;
}

void exchange_straight(Communicator& ranks, const Streams& outgoing, const Streams& incoming) {
  std::vector<Parcel> sends, receives;
  for (auto const& [peer, stream] : outgoing) {
    for (const Block& block : stream.straight)
      sends.push_back({peer, block.source(0, 0, 1, block.copy->box.numel())});
  }
  for (auto const& [peer, stream] : incoming) {
    for (const Block& block : stream.straight)
      receives.push_back({peer, block.target(0, 0, 1, block.copy->box.numel())});
  }
  // world: boxes go from those who held them to those who will.
  ranks.exchange(sends, receives);
}

// One buffer for a direction, in equal shares for the peers.
struct Staging {
  std::int64_t share = 0;  // elements
  Buffer room;

  Staging(Backend& backend, const Streams& streams, int ranks)
      : share(kMoveStagingBytes / 2 / size_of(DType::f32) / ranks) {
    std::int64_t most = 0;
    for (auto const& [peer, stream] : streams) most += piece_of(stream);
    if (most > 0) room = Buffer(backend, most * size_of(DType::f32));
  }
  std::int64_t piece_of(const Stream& stream) const { return std::min(share, stream.left); }
  float* begin() const { return reinterpret_cast<float*>(room.data()); }
};

// The stream's next `size` elements, packed at `place` in the backend's memory.
void pack(Backend& backend, Stream& stream, std::int64_t size, float* place) {
  stream.advance(size, [&](const Block& block, std::int64_t row, std::int64_t col,
                           std::int64_t rows, std::int64_t cols, std::int64_t before) {
    backend.copy(rectangle(place + before, rows, cols, cols), block.source(row, col, rows, cols));
  });
}

// The same, from `place` to where they belong.
void unpack(const Destination& to, Stream& stream, std::int64_t size, float* place,
            std::vector<float>& host) {
  if (to.far) {
    host.resize(static_cast<std::size_t>(size));
    to.backend.download(host.data(), {place, DType::f32, {size}});
  }
  stream.advance(size, [&](const Block& block, std::int64_t row, std::int64_t col,
                           std::int64_t rows, std::int64_t cols, std::int64_t before) {
    TensorView const target = block.target(row, col, rows, cols);
    if (!to.far) {
      to.backend.copy(target, rectangle(place + before, rows, cols, cols));
      return;
    }
    for (std::int64_t r = 0; r < rows; ++r)
      std::copy_n(host.data() + before + r * cols, cols,
                  target.ptr<float>() + r * target.stride[0]);
  });
}

// Both ends of a pair cut its stream into the same pieces, so the pairs need not agree on how many.
void exchange_packed(Communicator& ranks, const Destination& to, Streams& outgoing,
                     Streams& incoming) {
  Staging const out(to.backend, outgoing, ranks.size()), in(to.backend, incoming, ranks.size());
  std::vector<float> host;
  while (true) {
    std::vector<Parcel> sends, receives;
    float* place = out.begin();
    for (auto& [peer, stream] : outgoing) {
      std::int64_t const size = out.piece_of(stream);
      if (size == 0) continue;
      pack(to.backend, stream, size, place);
      sends.push_back({peer, {place, DType::f32, {size}}});
      place += size;
    }
    std::vector<Stream*> arriving;
    place = in.begin();
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
    for (std::size_t i = 0; i < arriving.size(); ++i)
      unpack(to, *arriving[i], receives[i].data.numel(), receives[i].data.ptr<float>(), host);
  }
}

// What stays on this rank.
void copy_local(const Destination& to, Streams local) {
  for (auto& [rank, stream] : local) {
    for (const Block& block : stream.straight) {
      std::int64_t const numel = block.copy->box.numel();
      to.backend.copy(block.target(0, 0, 1, numel), block.source(0, 0, 1, numel));
    }
    if (!to.far) {
      for (const Block& block : stream.packed) {
        to.backend.copy(block.target(0, 0, block.rows(), block.cols()),
                        block.source(0, 0, block.rows(), block.cols()));
      }
      continue;
    }
    Staging const staging(to.backend, local, 1);
    std::vector<float> host;
    // Read once to be packed, once more to be unpacked.
    for (Stream reader = stream; stream.left > 0;) {
      std::int64_t const size = staging.piece_of(stream);
      pack(to.backend, reader, size, staging.begin());
      unpack(to, stream, size, staging.begin(), host);
    }
  }
}

std::int64_t bytes_of(const std::vector<Copy>& copies) {
  std::int64_t elements = 0;
  for (const Copy& copy : copies) elements += copy.box.numel();
  return 3 * elements * size_of(DType::f32);
}

}  // namespace

MovedBytes move_state(Communicator& ranks, Backend& backend, const RankTransfer& transfer,
                      const TrainState& from, const TrainState& to, Landing landing,
                      const std::function<void()>& before_local) {
  Destination const destination{backend, landing == Landing::host && !backend.on_host()};
  bool const straight = !destination.far;
  Streams outgoing = streams_of(transfer.sends, true, from, to, straight);
  Streams incoming = streams_of(transfer.recvs, false, from, to, straight);
  exchange_straight(ranks, outgoing, incoming);
  // A local failure must not leave the peers alone in an exchange.
  std::exception_ptr failure;
  try {
    if (before_local) before_local();
  } catch (...) {
    failure = std::current_exception();
  }
  exchange_packed(ranks, destination, outgoing, incoming);
  if (failure) std::rethrow_exception(failure);
  copy_local(destination, streams_of(transfer.local, true, from, to, straight));
  return {bytes_of(transfer.sends), bytes_of(transfer.local)};
}

}  // namespace copus
