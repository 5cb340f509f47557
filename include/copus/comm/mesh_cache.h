// Meshes that a run has used, kept for when it comes back to them.
#pragma once
#include <cstddef>
#include <list>
#include <memory>
#include <utility>

#include "copus/comm/mesh.h"

namespace copus {

// Every rank of the world makes it, and asks it for the same layouts in the same order: what is
// kept and what is dropped is then the same everywhere, and communicators are made and destroyed
// together.
class MeshCache {
 public:
  // `kept`: (dp, tp, pp)s whose groups stay, the least recently used first out; those that a Mesh
  // still uses live as long as it does.
  MeshCache(Communicator& world, std::int64_t kv_heads, std::size_t kept,
            std::shared_ptr<CommActivity> activity)
      : world_(world), kv_heads_(kv_heads), kept_(kept), activity_(std::move(activity)) {}

  Mesh fetch(const Layout& layout);

 private:
  struct Entry {
    int dp = 0, tp = 0, pp = 0;
    std::shared_ptr<MeshGroups> groups;
  };
  Communicator& world_;
  std::int64_t kv_heads_;
  std::size_t kept_;
  std::shared_ptr<CommActivity> activity_;
  std::list<Entry> entries_;  // most recently used first
};

}  // namespace copus
