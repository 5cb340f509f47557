#include "copus/comm/mesh.h"

#include <algorithm>

#include "copus/core/error.h"

namespace copus {

Mesh::Mesh(Communicator& world, const Layout& layout) : layout_(layout) {
  COPUS_CHECK(layout.world() <= world.size(), "a layout has no more ranks than the world");
  active_ = world.rank() < layout.world();
  all_ = world.split(active_ ? 0 : -1, world.rank());
  if (!active_) return;
  coord_ = coord_of(layout, world.rank());
  dp_ = all_->split(coord_.pp * layout.tp + coord_.tp, coord_.dp);
  tp_ = all_->split(coord_.pp * layout.dp + coord_.dp, coord_.tp);
  pp_ = all_->split(coord_.dp * layout.tp + coord_.tp, coord_.pp);
}

void Mesh::split_kv(std::int64_t kv_heads) {
  std::int64_t const replicas = std::max<std::int64_t>(1, layout_.tp / kv_heads);
  kv_replicas_ = tp_->split(static_cast<int>(coord_.tp / replicas), coord_.tp);
}

}  // namespace copus
