#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <numeric>

#include "copus/parallel/transfer.h"
#include "models.h"

namespace copus {
namespace {

constexpr int kWorld = 16;

// Elements of the model numbered through: first[param] + row * columns + column.
struct Numbering {
  explicit Numbering(const ModelConfig& model) : table(parameter_table(model)) {
    for (const Param& param : table) {
      first.push_back(numel);
      numel += param.numel();
    }
  }
  std::vector<Param> table;
  std::vector<std::int64_t> first;
  std::int64_t numel = 0;

  // Calls body(element, state offset) for every element of a box kept at `offset`.
  template <class Body>
  void each(int param, const Box& box, std::int64_t offset, std::int64_t stride, Body body) const {
    auto const p = static_cast<std::size_t>(param);
    for (std::int64_t r = 0; r < box.size[0]; ++r) {
      std::int64_t const row = first[p] + (box.begin[0] + r) * table[p].size[1] + box.begin[1];
      for (std::int64_t c = 0; c < box.size[1]; ++c) {
        body(static_cast<std::size_t>(row + c), static_cast<std::size_t>(offset + r * stride + c));
      }
    }
  }
};

// A layout's state, element by element: who holds it, and what lies at each place of each rank.
struct Placement {
  Layout layout;
  std::vector<StateShard> shards;
  std::vector<std::uint16_t> holders;        // by element, one bit a rank
  std::vector<int> counted;                  // by element, how often
  std::vector<std::vector<int>> element_at;  // by rank and state offset; -1: padding
  bool sound = true;                         // no two boxes of a rank overlap

  Placement(const ModelConfig& model, const Numbering& number, const Layout& l)
      : layout(l),
        holders(static_cast<std::size_t>(number.numel)),
        counted(static_cast<std::size_t>(number.numel)) {
    for (int rank = 0; rank < layout.world(); ++rank) {
      shards.push_back(state_shard(model, layout, rank));
      auto& places = element_at.emplace_back(static_cast<std::size_t>(shards.back().numel), -1);
      for (const StateBox& held : shards.back().boxes) {
        number.each(held.param, held.box, held.offset, held.row_stride,
                    [&](std::size_t element, std::size_t place) {
                      sound &= places.at(place) == -1 && (holders[element] >> rank & 1) == 0;
                      places[place] = static_cast<int>(element);
                      holders[element] |= static_cast<std::uint16_t>(1u << rank);
                      counted[element] += held.counted ? 1 : 0;
                    });
      }
    }
  }
};

std::vector<Placement> placements_of(const ModelConfig& model, const Numbering& number) {
  std::vector<Placement> placements;
  for (const Layout& layout : layouts_up_to(model, kWorld)) {
    placements.emplace_back(model, number, layout);
  }
  return placements;
}

// What is wrong with the plan between two placements: wrong source or place, or written twice.
std::int64_t count_faults(const TransferPlan& plan, const Numbering& number,
                          const Placement& before, const Placement& after,
                          std::vector<std::uint16_t>& got) {
  std::int64_t faults = 0;
  std::fill(got.begin(), got.end(), std::uint16_t{0});
  for (const Copy& copy : plan.copies) {
    const std::vector<int>& source = before.element_at[static_cast<std::size_t>(copy.from)];
    const std::vector<int>& target = after.element_at[static_cast<std::size_t>(copy.to)];
    auto const bit = static_cast<std::uint16_t>(1u << copy.to);
    std::int64_t const shift = copy.from_offset - copy.to_offset;
    for (std::int64_t r = 0; r < copy.box.size[0]; ++r) {
      std::int64_t const from = shift + r * (copy.from_stride - copy.to_stride);
      Box const row{{copy.box.begin[0] + r, copy.box.begin[1]}, {1, copy.box.size[1]}};
      number.each(copy.param, row, copy.to_offset + r * copy.to_stride, 0,
                  [&](std::size_t element, std::size_t to) {
                    auto const at = static_cast<std::size_t>(static_cast<std::int64_t>(to) + from);
                    int const e = static_cast<int>(element);
                    bool const right = at < source.size() && to < target.size() &&
                                       source[at] == e && target[to] == e;
                    if (!right || (got[element] & bit) != 0) ++faults;
                    got[element] |= bit;
                  });
    }
  }
  return faults;
}

void check_all_pairs(const ModelConfig& model) {
  Numbering const number(model);
  std::vector<Placement> const placements = placements_of(model, number);
  std::vector<std::uint16_t> got(static_cast<std::size_t>(number.numel));
  for (const Placement& before : placements) {
    for (const Placement& after : placements) {
      TransferPlan const plan = transfer_plan(before.shards, after.shards);
      std::int64_t const faults = count_faults(plan, number, before, after, got);
      std::int64_t missing_before = 0, kept = 0;  // sum over ranks of |new - old|, |new and old|
      for (std::size_t e = 0; e < got.size(); ++e) {
        std::uint16_t const now = after.holders[e], old = before.holders[e];
        missing_before += std::popcount(static_cast<std::uint16_t>(now & ~old));
        kept += std::popcount(static_cast<std::uint16_t>(now & old));
      }
      bool const good = faults == 0 && got == after.holders &&
                        plan.sent_elements() == missing_before && plan.local_elements() == kept;
      if (!good) {
        FAIL_CHECK(to_string(before.layout)
                   << " to " << to_string(after.layout) << ": " << faults << " faults, sent "
                   << plan.sent_elements() << " of " << missing_before);
      }
    }
  }
  CHECK(placements.size() > 50);
}

Layout zero_of(int dp, int tp, int pp) {
  return {dp, tp, pp, 1, 1, false};
}

}  // namespace

TEST_CASE(
    "the state of every layout up to 16 ranks holds every element, counted once, none twice on a "
    "rank") {
  for (const ModelConfig& model : small_models()) {
    Numbering const number(model);
    for (const Placement& placement : placements_of(model, number)) {
      CAPTURE(to_string(placement.layout), model.layers);
      CHECK(placement.sound);
      CHECK(std::all_of(placement.counted.begin(), placement.counted.end(),
                        [](int times) { return times == 1; }));
    }
  }
}

// All pairs of legal layouts of up to 16 ranks each, with and without ZeRO and virtual stages, and
// so every pair in which ranks come or go; one test a model.
TEST_CASE(
    "a transfer between any two layouts of a deep model moves each missing element once and no "
    "other") {
  check_all_pairs(small_models()[0]);
}
TEST_CASE(
    "a transfer between any two layouts of a wide tied model moves each missing element once and "
    "no other") {
  check_all_pairs(small_models()[1]);
}
TEST_CASE(
    "a transfer between any two layouts of a bytes model moves each missing element once and no "
    "other") {
  check_all_pairs(small_models()[2]);
}
TEST_CASE(
    "a transfer between any two layouts of a GPT-2 model moves each missing element once and no "
    "other") {
  check_all_pairs(small_models()[3]);
}

TEST_CASE("R15: ZeRO pieces of odd dp move to odd dp without their padding") {
  ModelConfig const model = small_models()[2];
  Numbering const number(model);
  std::vector<std::uint16_t> got(static_cast<std::size_t>(number.numel));
  for (int from : {1, 2, 3, 5, 7, 8}) {
    for (int to : {1, 2, 3, 5, 7, 8}) {
      CAPTURE(from, to);
      Placement const before(model, number, zero_of(from, 2, 1));
      Placement const after(model, number, zero_of(to, 1, 2));
      TransferPlan const plan = transfer_plan(before.shards, after.shards);
      CHECK(count_faults(plan, number, before, after, got) == 0);
      CHECK(got == after.holders);
    }
  }
}

TEST_CASE("a re-shard moves nothing when the layout is the same") {
  for (const ModelConfig& model : small_models()) {
    for (const Layout& layout : layouts_up_to(model, 8)) {
      TransferPlan const plan = transfer_plan(model, layout, layout);
      CAPTURE(to_string(layout));
      CHECK(plan.sent_elements() == 0);
      CHECK(plan.local_elements() > 0);
    }
  }
}

TEST_CASE("turning ZeRO on moves nothing, since every rank had its piece") {
  for (const ModelConfig& model : small_models()) {
    Layout before{3, 2, 2, 1, 0, false}, after = before;
    after.zero = 1;
    CHECK(transfer_plan(model, before, after).sent_elements() == 0);
    CHECK(transfer_plan(model, after, before).sent_elements() > 0);
  }
}

TEST_CASE("ranks that join are served by the replicas in turn") {
  ModelConfig const model = small_models()[0];
  TransferPlan const plan = transfer_plan(model, {4, 1, 1, 1, 0, false}, {8, 1, 1, 1, 0, false});
  std::vector<std::int64_t> sent(8);
  std::int64_t largest = 0;
  for (const Copy& copy : plan.copies) {
    if (copy.from == copy.to) continue;
    CHECK(copy.from < 4);
    CHECK(copy.to >= 4);
    sent[static_cast<std::size_t>(copy.from)] += copy.box.numel();
    largest = std::max(largest, copy.box.numel());
  }
  auto const [least, most] = std::minmax_element(sent.begin(), sent.begin() + 4);
  // Each copy went to the one with least, so no two are further apart than one copy.
  CHECK(*most - *least <= largest);
  CHECK(std::accumulate(sent.begin(), sent.end(), std::int64_t{0}) == 4 * parameter_count(model));
}

TEST_CASE(
    "the ranks' parts are the plan, each copy once sent and once received in the same order") {
  ModelConfig const model = small_models()[1];
  Layout const before = zero_of(3, 2, 2), after{2, 4, 1, 1, 0, false};
  TransferPlan const plan = transfer_plan(model, before, after);
  std::size_t local = 0, sends = 0, recvs = 0;
  std::vector<RankTransfer> parts;
  for (int rank = 0; rank < 12; ++rank) {
    parts.push_back(rank_transfer(plan, rank));
    local += parts.back().local.size();
    sends += parts.back().sends.size();
    recvs += parts.back().recvs.size();
  }
  CHECK(sends == recvs);
  CHECK(local + sends == plan.copies.size());
  for (int from = 0; from < 12; ++from) {
    for (int to = 0; to < 12; ++to) {
      std::vector<Copy> sent, received;
      for (const Copy& copy : parts[static_cast<std::size_t>(from)].sends) {
        if (copy.to == to) sent.push_back(copy);
      }
      for (const Copy& copy : parts[static_cast<std::size_t>(to)].recvs) {
        if (copy.from == from) received.push_back(copy);
      }
      CHECK(sent == received);
    }
  }
}

TEST_CASE("a tied master goes to the first stage alone and a rank without a place gets nothing") {
  ModelConfig const model = small_models()[2];
  Layout const after{1, 1, 4, 1, 0, false};
  TransferPlan const plan = transfer_plan(model, {8, 1, 1, 1, 1, false}, after);
  CHECK(state_shard(model, after, 4).boxes.empty());
  std::int64_t embedding = 0;
  for (const Copy& copy : plan.copies) {
    CHECK(copy.to < 4);
    if (copy.param != 0) continue;
    CHECK(copy.to == 0);
    embedding += copy.box.numel();
  }
  CHECK(embedding == model.vocab * model.hidden);
}

}  // namespace copus
