#include "copus/comm/mesh.h"

#include <algorithm>

#include "comm/timed_communicator.h"
#include "copus/core/error.h"

namespace copus {

Mesh::Mesh(Communicator& world, const Layout& layout) : layout_(layout) {
  COPUS_CHECK(layout.world() <= world.size(), "a layout has no more ranks than the world");
  active_ = world.rank() < layout.world();
  auto const timed = [this](std::unique_ptr<Communicator> group) -> std::unique_ptr<Communicator> {
    return std::make_unique<TimedCommunicator>(std::move(group), *seconds_);
  };
  auto group = world.split(active_ ? 0 : -1, world.rank());
  if (!active_) return;
  all_ = timed(std::move(group));
  coord_ = coord_of(layout, world.rank());
  dp_ = timed(all_->split(coord_.pp * layout.tp + coord_.tp, coord_.dp));
  tp_ = timed(all_->split(coord_.pp * layout.dp + coord_.dp, coord_.tp));
  pp_ = timed(all_->split(coord_.dp * layout.tp + coord_.tp, coord_.pp));
}

void Mesh::split_kv(std::int64_t kv_heads) {
  std::int64_t const replicas = std::max<std::int64_t>(1, layout_.tp / kv_heads);
  kv_replicas_ = std::make_unique<TimedCommunicator>(
      tp_->split(static_cast<int>(coord_.tp / replicas), coord_.tp), *seconds_);
}

}  // namespace copus
