// The groups of a layout by role.
#pragma once
#include <memory>
#include <utility>

#include "copus/comm/activity.h"
#include "copus/comm/communicator.h"
#include "copus/comm/group_traffic.h"
#include "copus/parallel/layout.h"

namespace copus {

// The communicators of one (dp, tp, pp). Every rank of `world` makes it together; ranks beyond the
// layout get an inactive one, without groups.
class MeshGroups {
 public:
  // kv_heads: the tp group is split once more where tp exceeds them. `activity`: where the calls of
  // all groups are on record while they run.
  MeshGroups(Communicator& world, const Layout& layout, std::int64_t kv_heads,
             std::shared_ptr<CommActivity> activity);

 private:
  friend class Mesh;
  std::shared_ptr<CommActivity> activity_;
  TrafficCounter all_traffic_, dp_traffic_, tp_traffic_, pp_traffic_;
  std::unique_ptr<Communicator> all_, dp_, tp_, pp_, kv_replicas_;
};

// A layout with its groups, which layouts of the same (dp, tp, pp) share.
class Mesh {
 public:
  // `rank` in the world.
  Mesh(std::shared_ptr<MeshGroups> groups, const Layout& layout, int rank);
  // With groups of its own.
  Mesh(Communicator& world, const Layout& layout, std::int64_t kv_heads);

  bool active() const { return active_; }  // this rank is in the layout; the rest is only for those
  const Coord& coord() const { return coord_; }
  const Layout& layout() const { return layout_; }

  Communicator& all() const { return *groups_->all_; }  // every active rank
  Communicator& dp() const { return *groups_->dp_; }    // same shard, other samples
  Communicator& tp() const { return *groups_->tp_; }    // same stage and samples, other slices
  Communicator& pp() const { return *groups_->pp_; }    // same samples and slice, other stages
  // Of the tp group, those that hold the same kv heads when tp exceeds their number; else of one.
  Communicator& kv_replicas() const { return *groups_->kv_replicas_; }

  // So far: gathers of weights may be on their way in dp.
  GroupTraffic dp_traffic() const { return groups_->dp_traffic_.now(); }
  GroupTraffic tp_traffic() const { return groups_->tp_traffic_.now(); }
  GroupTraffic pp_traffic() const { return groups_->pp_traffic_.now(); }
  // Time this rank's own thread has spent so far in calls of its groups other than dp.
  double communication_seconds() const;

 private:
  Layout layout_;
  bool active_ = false;
  Coord coord_;
  std::shared_ptr<MeshGroups> groups_;
};

}  // namespace copus
