// All ranks learn whether one of them has met a problem, and what it says.
#pragma once
#include <exception>
#include <string>
#include <vector>

#include "copus/comm/communicator.h"
#include "copus/core/error.h"

namespace copus {

// `problem`: empty where all is well. Returns "" when it is on every rank, else "rank R: ..." of
// the lowest rank with a problem, the same everywhere. Every rank calls it.
std::string first_problem(Communicator& ranks, const std::string& problem);

// Whether no rank has found a mistake of the user's: false is for a rank to stop in silence, for a
// peer has told. Throws ConfigError where this rank is to tell; ranks that find the same as rank 0
// leave it to that. Every rank calls it, before anything is written.
bool agreed(Communicator& ranks, const std::vector<std::string>& mistakes);

// What `body` returns as its problem, or has thrown. A peer's end is nobody's problem to report: a
// CommError goes on, and ends the run.
template <class Body>
std::string problem_of(const Body& body) {
  try {
    return body();
  } catch (const CommError&) {
    throw;
  } catch (const std::exception& e) {
    return *e.what() != '\0' ? e.what() : "an exception without words";
  }
}

}  // namespace copus
