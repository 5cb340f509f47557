#include "copus/comm/mesh_cache.h"

#include <algorithm>

namespace copus {

Mesh MeshCache::fetch(const Layout& layout) {
  auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) {
    return e.dp == layout.dp && e.tp == layout.tp && e.pp == layout.pp;
  });
  if (found == entries_.end()) {
    auto groups = std::make_shared<MeshGroups>(world_, layout, kv_heads_, activity_);
    entries_.push_front({layout.dp, layout.tp, layout.pp, std::move(groups)});
  } else {
    entries_.splice(entries_.begin(), entries_, found);
  }
  Mesh mesh(entries_.front().groups, layout, world_.rank());
  while (entries_.size() > kept_) entries_.pop_back();
  return mesh;
}

}  // namespace copus
