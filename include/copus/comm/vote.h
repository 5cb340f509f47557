// All ranks learn whether one of them has met a problem, and what it says.
#pragma once
#include <string>

#include "copus/comm/communicator.h"

namespace copus {

// `problem`: empty where all is well. Returns "" when it is on every rank, else "rank R: ..." of
// the lowest rank with a problem (cut to some 200 bytes), the same everywhere. Every rank calls it.
std::string first_problem(Communicator& ranks, const std::string& problem);

}  // namespace copus
