// Which elements of master, m and v go from which rank to which when the layout changes.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "copus/parallel/layout.h"
#include "copus/parallel/params.h"
#include "copus/parallel/state_shard.h"

namespace copus {

// One rectangle of one parameter; offsets and row strides are those of the state buffers
// (StateShard) on either side, the same for master, m and v. from == to: a local copy.
struct Copy {
  int param = 0;
  Box box;
  int from = 0, to = 0;
  std::int64_t from_offset = 0, from_stride = 0;
  std::int64_t to_offset = 0, to_stride = 0;
  bool operator==(const Copy&) const = default;
};

// Fills every element of every new shard exactly once. What a rank already holds it copies from
// itself, so no more is sent than the new shards hold beyond the old; the rest comes from the
// holder that has least to send so far. Padding never moves. All ranks derive the same plan, so the
// order of the copies between two ranks is the same on both sides.
struct TransferPlan {
  std::vector<Copy> copies;  // by destination rank, then in the order of its buffers

  std::int64_t sent_elements() const;   // between ranks, of one of the three buffers
  std::int64_t local_elements() const;  // within ranks
};
TransferPlan transfer_plan(const ModelConfig& model, const Layout& before, const Layout& after);
// From shards by rank; ranks past the end hold nothing.
TransferPlan transfer_plan(std::span<const StateShard> before, std::span<const StateShard> after);

// One rank's part, in the plan's order.
struct RankTransfer {
  std::vector<Copy> sends, recvs, local;
};
RankTransfer rank_transfer(const TransferPlan& plan, int rank);

}  // namespace copus
