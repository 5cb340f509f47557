// What moving bytes between ranks costs, by where the ranks of a group stand.
#pragma once
#include "copus/plan/cost.h"

namespace copus::detail {

// Ranks of one group: `size` in all, `per_node` of them in each node it touches.
struct Group {
  std::int64_t size = 1, per_node = 1;
  std::int64_t nodes() const { return (size + per_node - 1) / per_node; }
};
Group tensor_group(const Layout& layout, const Cluster& cluster);
Group data_group(const Layout& layout, const Cluster& cluster);

// Rings: n - 1 steps to gather or to scatter `bytes` (the whole tensor), twice as many for an
// all-reduce. Between nodes each rank of the group brings its own link, and they carry the ring
// together.
double all_reduce_seconds(const Group& group, double bytes, const Cluster& cluster);
double gather_seconds(const Group& group, double bytes, const Cluster& cluster);

// Between neighbouring pipeline ranks.
double message_seconds(const Layout& layout, double bytes, const Cluster& cluster);

}  // namespace copus::detail
