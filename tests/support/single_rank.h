// A mesh of one rank, for what is tested without peers.
#pragma once
#include <memory>

#include "copus/comm/mesh.h"

namespace copus::test {

struct SingleRank {
  std::unique_ptr<Communicator> world = make_single_communicator();
  Mesh mesh{*world, Layout{}};
};

}  // namespace copus::test
