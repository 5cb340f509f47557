#include "plan/links.h"

#include <algorithm>

namespace copus::detail {
namespace {

// `stride` ranks apart. Groups that straddle a node's end unevenly count as if they started at one.
Group group_of(std::int64_t size, std::int64_t stride, std::int64_t gpus_per_node) {
  return {size, std::clamp<std::int64_t>(gpus_per_node / stride, 1, size)};
}

}  // namespace

Group tensor_group(const Layout& layout, const Cluster& cluster) {
  return group_of(layout.tp, 1, cluster.gpus_per_node);
}

Group data_group(const Layout& layout, const Cluster& cluster) {
  return group_of(layout.dp, layout.tp, cluster.gpus_per_node);
}

double gather_seconds(const Group& group, double bytes, const Cluster& cluster) {
  if (group.size <= 1) return 0.0;
  const Hardware& hw = cluster.hardware;
  auto const n = static_cast<double>(group.size), nodes = static_cast<double>(group.nodes());
  double bandwidth = hw.inside.bytes_per_second;
  if (group.nodes() > 1) {
    double const links =
        static_cast<double>(group.per_node) * hw.between.bytes_per_second * hw.between_efficiency;
    bandwidth = group.per_node > 1 ? std::min(bandwidth, links) : links;
  }
  double const crossings = nodes > 1.0 ? nodes : 0.0;
  double const latency = std::max(0.0, n - 1.0 - crossings) * hw.inside.latency_seconds +
                         crossings * hw.between.latency_seconds;
  return latency + (n - 1.0) / n * bytes / bandwidth;
}

double all_reduce_seconds(const Group& group, double bytes, const Cluster& cluster) {
  return 2.0 * gather_seconds(group, bytes, cluster);
}

double message_seconds(const Layout& layout, double bytes, const Cluster& cluster) {
  if (layout.pp == 1) return 0.0;
  const Hardware& hw = cluster.hardware;
  // The farthest neighbours of any group decide; a stage has dp x tp ranks.
  std::int64_t const stage = std::int64_t{layout.dp} * layout.tp;
  bool const inside = stage * layout.pp <= cluster.gpus_per_node;
  const Link& link = inside ? hw.inside : hw.between;
  double const efficiency = inside ? 1.0 : hw.between_efficiency;
  return link.latency_seconds + bytes / (link.bytes_per_second * efficiency);
}

}  // namespace copus::detail
