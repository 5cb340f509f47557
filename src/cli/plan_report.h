// What `copus plan` says: a table for people, a document for programs.
#pragma once
#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "copus/core/config.h"
#include "copus/plan/candidates.h"

namespace copus {

// Candidates of one configuration, best first: those that fit by goodput under the configured
// objective, then the others.
struct PlanReport {
  const Config& config;
  const Cluster& cluster;
  int world = 1;
  double phi = 0.0;  // critical batch in sequences, calibrated; infinite when not known
  std::vector<Candidate> candidates;
};

void sort_candidates(PlanReport& report);
nlohmann::json as_json(const PlanReport& report);
// `rows` candidates at most.
void print_table(const PlanReport& report, std::size_t rows);

}  // namespace copus
