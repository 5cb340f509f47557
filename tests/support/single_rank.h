// A world of one rank, for what is tested without peers.
#pragma once
#include <memory>

#include "copus/comm/communicator.h"

namespace copus::test {

struct SingleRank {
  std::unique_ptr<Communicator> world = make_single_communicator();
};

}  // namespace copus::test
