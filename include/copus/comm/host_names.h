// The hosts that a world's ranks run on.
#pragma once
#include <string>
#include <vector>

#include "copus/comm/communicator.h"

namespace copus {

// Each host once, by its lowest rank; the same on every rank. Every rank calls it. Names are cut to
// 63 bytes.
std::vector<std::string> host_names(Communicator& world);

}  // namespace copus
