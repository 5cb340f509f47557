// A short text of every rank for every rank.
#pragma once
#include <string>
#include <vector>

#include "copus/comm/communicator.h"

namespace copus {

// `text` of each rank, by rank, cut to 127 bytes. Every rank calls it.
std::vector<std::string> gather_texts(Communicator& ranks, const std::string& text);

}  // namespace copus
