// The groups of a layout by role, made from the world once.
#pragma once
#include <memory>

#include "copus/comm/communicator.h"
#include "copus/parallel/layout.h"

namespace copus {

// Every rank of `world` makes it together. Ranks beyond the layout get an inactive mesh.
class Mesh {
 public:
  Mesh(Communicator& world, const Layout& layout);

  bool active() const { return active_; }  // this rank is in the layout; the rest is only for those
  const Coord& coord() const { return coord_; }
  const Layout& layout() const { return layout_; }

  Communicator& all() { return *all_; }  // every active rank
  Communicator& dp() { return *dp_; }    // same shard, other samples
  Communicator& tp() { return *tp_; }    // same stage and samples, other slices
  Communicator& pp() { return *pp_; }    // same samples and slice, other stages
  // Of the tp group, those that hold the same kv heads when tp exceeds their number; else of one.
  Communicator& kv_replicas() { return *kv_replicas_; }

  // Time this rank has spent in calls of all its groups so far.
  double communication_seconds() const { return *seconds_; }

  // Splits the tp group once the model's kv heads are known.
  void split_kv(std::int64_t kv_heads);

 private:
  Layout layout_;
  bool active_ = false;
  Coord coord_;
  std::unique_ptr<double> seconds_ = std::make_unique<double>(0.0);
  std::unique_ptr<Communicator> all_, dp_, tp_, pp_, kv_replicas_;
};

}  // namespace copus
