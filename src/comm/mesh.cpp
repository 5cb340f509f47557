#include "copus/comm/mesh.h"

#include <algorithm>

#include "comm/timed_communicator.h"
#include "copus/core/error.h"

namespace copus {

MeshGroups::MeshGroups(Communicator& world, const Layout& layout, std::int64_t kv_heads,
                       std::shared_ptr<CommActivity> activity)
    : activity_(std::move(activity)) {
  COPUS_CHECK(layout.world() <= world.size(), "a layout has no more ranks than the world");
  bool const active = world.rank() < layout.world();
  auto group = world.split(active ? 0 : -1, world.rank());
  if (!active) return;
  auto const timed = [this](std::unique_ptr<Communicator> inner, const char* role,
                            TrafficCounter& traffic) {
    CallRecord& record = &traffic == &dp_traffic_ ? activity_->queue : activity_->own;
    return std::make_unique<TimedCommunicator>(std::move(inner), role, traffic, record);
  };
  all_ = timed(std::move(group), "all", all_traffic_);
  Coord const at = coord_of(layout, world.rank());
  dp_ = timed(all_->split(at.pp * layout.tp + at.tp, at.dp), "dp", dp_traffic_);
  tp_ = timed(all_->split(at.pp * layout.dp + at.dp, at.tp), "tp", tp_traffic_);
  pp_ = timed(all_->split(at.dp * layout.tp + at.tp, at.pp), "pp", pp_traffic_);
  std::int64_t const replicas = std::max<std::int64_t>(1, layout.tp / kv_heads);
  kv_replicas_ =
      timed(tp_->split(static_cast<int>(at.tp / replicas), at.tp), "kv replicas", tp_traffic_);
}

Mesh::Mesh(std::shared_ptr<MeshGroups> groups, const Layout& layout, int rank)
    : layout_(layout), active_(rank < layout.world()), groups_(std::move(groups)) {
  if (active_) coord_ = coord_of(layout, rank);
}

Mesh::Mesh(Communicator& world, const Layout& layout, std::int64_t kv_heads)
    : Mesh(std::make_shared<MeshGroups>(world, layout, kv_heads, std::make_shared<CommActivity>()),
           layout, world.rank()) {}

double Mesh::communication_seconds() const {
  return groups_->all_traffic_.now().seconds + groups_->tp_traffic_.now().seconds +
         groups_->pp_traffic_.now().seconds;
}

}  // namespace copus
