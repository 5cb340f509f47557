// The hosts that a world's ranks run on.
#pragma once
#include <string>
#include <vector>

#include "copus/comm/communicator.h"

namespace copus {

// This one's, cut to 63 bytes.
std::string host_name();

// Each host once, by its lowest rank; the same on every rank. Every rank calls it.
std::vector<std::string> host_names(Communicator& world);

}  // namespace copus
