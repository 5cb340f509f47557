#include "comm/conformance.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "copus/backend/buffer.h"
#include "copus/core/math.h"

namespace copus::test {
namespace {

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error("conformance: " + what);
}

// Element i of rank r's buffer: a small integer, exact in f32 even summed over many ranks.
float value(int rank, std::int64_t i) {
  return static_cast<float>((i * 7 + rank * 3) % 64 - 20);
}

std::vector<float> buffer_of(int rank, std::int64_t n) {
  std::vector<float> x(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) x[static_cast<std::size_t>(i)] = value(rank, i);
  return x;
}

// A tensor where the communicator wants it.
template <class T>
class Held {
 public:
  Held(Backend& memory, const std::vector<T>& values, DType dtype)
      : memory_(&memory),
        buffer_(memory, std::max<std::int64_t>(1, count(values) * size_of(dtype))),
        view_(buffer_.data(), dtype, {count(values)}) {
    memory.upload(view_, values.data());
  }
  const TensorView& view() const { return view_; }
  TensorView part(std::int64_t first, std::int64_t n) const { return view_.slice(0, first, n); }
  std::vector<T> values() const {
    std::vector<T> values(static_cast<std::size_t>(view_.numel()));
    memory_->download(values.data(), view_);
    return values;
  }

 private:
  static std::int64_t count(const std::vector<T>& values) {
    return static_cast<std::int64_t>(values.size());
  }
  Backend* memory_;
  Buffer buffer_;
  TensorView view_;
};

Held<float> held(Backend& memory, const std::vector<float>& values) {
  return {memory, values, DType::f32};
}
Held<float> blank(Backend& memory, std::int64_t n) {
  return held(memory, std::vector<float>(static_cast<std::size_t>(n), -1.0f));
}

float reduced(int size, std::int64_t i, ReduceOp op) {
  float result = value(0, i);
  for (int r = 1; r < size; ++r) {
    float const v = value(r, i);
    result = op == ReduceOp::sum
                 ? result + v
                 : (op == ReduceOp::max ? std::max(result, v) : std::min(result, v));
  }
  return result;
}

// For groups of every shape: what is left to go wrong there is who takes part.
const std::vector<std::int64_t> kShort{0, 1, 1000};

void check_reductions(Communicator& c, Backend& memory, const std::vector<std::int64_t>& lengths) {
  for (std::int64_t n : lengths) {
    for (ReduceOp op : {ReduceOp::sum, ReduceOp::max, ReduceOp::min}) {
      Held<float> const x = held(memory, buffer_of(c.rank(), n));
      c.all_reduce(x.view(), op);
      std::vector<float> const got = x.values();
      for (std::int64_t i = 0; i < n; ++i) {
        require(got[static_cast<std::size_t>(i)] == reduced(c.size(), i, op),
                fmt::format("all_reduce of {} at {}", n, i));
      }
    }
    std::vector<float> const before = buffer_of(c.rank(), n * c.size());
    Held<float> const x = held(memory, before), out = blank(memory, n);
    c.reduce_scatter(out.view(), x.view());
    std::vector<float> got = out.values();
    for (std::int64_t i = 0; i < n; ++i) {
      require(
          got[static_cast<std::size_t>(i)] == reduced(c.size(), n * c.rank() + i, ReduceOp::sum),
          fmt::format("reduce_scatter of {} at {}", n, i));
    }
    require(x.values() == before, "reduce_scatter leaves its input");
    // In place: the output is the own piece of the input.
    c.reduce_scatter(x.part(n * c.rank(), n), x.view());
    got = x.values();
    for (std::int64_t i = n * c.rank(); i < n * (c.rank() + 1); ++i) {
      require(got[static_cast<std::size_t>(i)] == reduced(c.size(), i, ReduceOp::sum),
              "reduce_scatter in place");
    }
  }
  double scalars[3] = {1.5 * c.rank(), -2.0, c.rank() == 0 ? 1.0 : 0.0};
  c.all_reduce(std::span<double>(scalars), ReduceOp::sum);
  require(scalars[0] == 0.75 * c.size() * (c.size() - 1) && scalars[1] == -2.0 * c.size() &&
              scalars[2] == 1.0,
          "all_reduce of scalars");
  std::uint64_t big = ~std::uint64_t{0} - static_cast<std::uint64_t>(c.rank());
  std::uint64_t expected = 0;
  for (int r = 0; r < c.size(); ++r) expected += ~std::uint64_t{0} - static_cast<std::uint64_t>(r);
  c.all_reduce(std::span(&big, 1), ReduceOp::sum);
  require(big == expected, "all_reduce of integers wraps modulo 2^64");
  Held<std::int32_t> const ints(memory, {c.rank(), 7}, DType::i32);
  c.all_reduce(ints.view(), ReduceOp::max);
  require(ints.values() == std::vector<std::int32_t>{c.size() - 1, 7}, "all_reduce of i32");
}

// One rank's 256 and ones: each partial sum rounded to bf16 would stay at 256.
void check_bf16(Communicator& c, Backend& memory, std::int64_t n) {
  auto const filled = [&](std::int64_t count) {
    return Held<std::uint16_t>(
        memory,
        std::vector<std::uint16_t>(static_cast<std::size_t>(count),
                                   math::to_bf16(c.rank() == 0 ? 256.0f : 1.0f)),
        DType::bf16);
  };
  std::uint16_t const sum = math::to_bf16(256.0f + static_cast<float>(c.size() - 1));
  Held<std::uint16_t> const x = filled(n), most = filled(n), whole = filled(n * c.size());
  c.all_reduce(x.view(), ReduceOp::sum);
  for (std::uint16_t const got : x.values())
    require(got == sum, fmt::format("all_reduce of {} bf16", n));
  c.all_reduce(most.view(), ReduceOp::max);
  for (std::uint16_t const got : most.values())
    require(got == math::to_bf16(256.0f), fmt::format("all_reduce of {} bf16 to the maximum", n));
  c.reduce_scatter(whole.part(n * c.rank(), n), whole.view());
  std::vector<std::uint16_t> const got = whole.values();
  for (std::int64_t i = 0; i < n; ++i)
    require(got[static_cast<std::size_t>(n * c.rank() + i)] == sum,
            fmt::format("reduce_scatter of {} bf16 at {}", n, i));
}

void check_gathers(Communicator& c, Backend& memory, const std::vector<std::int64_t>& lengths) {
  for (std::int64_t n : lengths) {
    std::vector<float> const mine = buffer_of(c.rank(), n);
    Held<float> const x = held(memory, mine), out = blank(memory, n * c.size());
    c.all_gather(out.view(), x.view());
    std::vector<float> const all = out.values();
    for (int r = 0; r < c.size(); ++r) {
      for (std::int64_t i = 0; i < n; ++i) {
        require(all[static_cast<std::size_t>(n * r + i)] == value(r, i),
                fmt::format("all_gather of {}", n));
      }
    }
    Held<float> const again = blank(memory, n * c.size());
    TensorView const own = again.part(n * c.rank(), n);
    memory.upload(own, mine.data());
    c.all_gather(again.view(), own);
    require(again.values() == all, "all_gather in place");
    for (int root : {0, c.size() - 1}) {
      Held<float> const y = held(memory, mine);
      c.broadcast(y.view(), root);
      require(y.values() == buffer_of(root, n), fmt::format("broadcast of {} from {}", n, root));
    }
  }
}

void check_exchange(Communicator& c, Backend& memory, std::int64_t large) {
  // Everybody to everybody, itself too, in opposite orders on the two sides of a pair: several
  // messages a pair, all sizes.
  for (std::int64_t n : {std::int64_t{1}, std::int64_t{1000}, large / 8}) {
    std::vector<Held<float>> out, in;
    std::vector<Parcel> sends, receives;
    for (int peer = 0; peer < c.size(); ++peer) {
      for (int k = 0; k < 2; ++k) {
        out.push_back(held(memory, buffer_of(c.rank() * 10 + k, n + k)));
        in.push_back(blank(memory, n + k));
      }
    }
    for (int peer = 0; peer < c.size(); ++peer) {
      for (int k = 0; k < 2; ++k) {
        int const other = c.size() - 1 - peer;
        sends.push_back({other, out[static_cast<std::size_t>(2 * other + k)].view()});
        receives.push_back({peer, in[static_cast<std::size_t>(2 * peer + k)].view()});
      }
    }
    c.exchange(sends, receives);
    for (int peer = 0; peer < c.size(); ++peer) {
      for (int k = 0; k < 2; ++k) {
        require(
            in[static_cast<std::size_t>(2 * peer + k)].values() == buffer_of(peer * 10 + k, n + k),
            fmt::format("exchange of {} from {}", n, peer));
      }
    }
  }
  // C9: both sides of a ring send before they receive, in messages too large to be buffered.
  Held<float> const mine = held(memory, buffer_of(c.rank(), large)), theirs = blank(memory, large);
  int const next = (c.rank() + 1) % c.size(), before = (c.rank() + c.size() - 1) % c.size();
  Parcel const send{next, mine.view()}, receive{before, theirs.view()};
  c.exchange({&send, 1}, {&receive, 1});
  require(theirs.values() == buffer_of(before, large), "a ring of large messages");
}

// Messages round a ring on two lanes, started in opposite orders by the two sides, several of each
// under way, and waited for last first.
void check_transfers(Communicator& c, Backend& memory, std::int64_t large) {
  if (!c.can_start()) return;
  constexpr int kRounds = 3;
  int const next = (c.rank() + 1) % c.size(), before = (c.rank() + c.size() - 1) % c.size();
  for (std::int64_t const n : {std::int64_t{0}, std::int64_t{1000}, large}) {
    std::vector<Held<float>> out, in;
    for (int i = 0; i < 2 * kRounds; ++i) {
      out.push_back(held(memory, buffer_of(c.rank() * 10 + i, n)));
      in.push_back(blank(memory, n));
    }
    std::vector<std::unique_ptr<Transfer>> started;
    auto const start = [&](bool outgoing, int lane, int round) {
      auto const i = static_cast<std::size_t>(lane * kRounds + round);
      Parcel const parcel{outgoing ? next : before, (outgoing ? out : in)[i].view(), lane};
      std::span<const Parcel> const one(&parcel, 1), none;
      started.push_back(outgoing ? c.start(one, none) : c.start(none, one));
    };
    for (int lane = 0; lane < 2; ++lane) {
      for (int round = 0; round < kRounds; ++round) start(c.rank() % 2 == 0, lane, round);
    }
    for (int lane = 1; lane >= 0; --lane) {
      for (int round = 0; round < kRounds; ++round) start(c.rank() % 2 != 0, lane, round);
    }
    for (auto transfer = started.rbegin(); transfer != started.rend(); ++transfer)
      (*transfer)->wait();
    for (int i = 0; i < 2 * kRounds; ++i) {
      require(in[static_cast<std::size_t>(i)].values() == buffer_of(before * 10 + i, n),
              fmt::format("message {} of {} elements, started", i, n));
    }
  }
}

}  // namespace

void check_communicator(Communicator& world, Backend& memory, const Lengths& lengths) {
  check_reductions(world, memory, lengths.collective);
  for (std::int64_t const n : lengths.collective) check_bf16(world, memory, n);
  check_gathers(world, memory, lengths.collective);
  check_exchange(world, memory, lengths.message);
  check_transfers(world, memory, lengths.message);
  world.barrier();
  // Every shape of group: each divisor of the world as groups of neighbours and as strided ones,
  // and groups that leave some out.
  for (int parts = 1; parts <= world.size(); ++parts) {
    for (bool strided : {false, true}) {
      int const color = strided ? world.rank() % parts : world.rank() * parts / world.size();
      auto const group = world.split(color, -world.rank());
      int size = 0, place = 0;
      for (int r = 0; r < world.size(); ++r) {
        if ((strided ? r % parts : r * parts / world.size()) != color) continue;
        ++size;
        if (r > world.rank()) ++place;  // the key turned the order round
      }
      require(group->size() == size && group->rank() == place,
              "a split has its members in the order of their keys");
      check_reductions(*group, memory, kShort);
      for (std::int64_t const n : kShort) check_bf16(*group, memory, n);
      check_exchange(*group, memory, 16'000);
      check_transfers(*group, memory, 16'000);
    }
  }
  bool const out = world.rank() % 2 == 1;
  auto const some = world.split(out ? -1 : 3, 0);
  require((some == nullptr) == out, "a negative color joins no group");
  if (some) check_gathers(*some, memory, kShort);
  world.barrier();
}

}  // namespace copus::test
