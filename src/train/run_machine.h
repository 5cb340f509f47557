// What a run computes on: this rank's device, how its tensors reach the others, and what all of
// them reach together.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "copus/backend/backend.h"
#include "copus/comm/communicator.h"
#include "copus/comm/rank_device.h"
#include "copus/core/config.h"
#include "copus/parallel/layout.h"
#include "copus/plan/cost.h"

namespace copus {

struct RunMachine {
  RankDevice device;
  Backend& backend;
  std::unique_ptr<Communicator> ranks;  // of the world, for tensors in the backend's memory
  std::vector<double> peak_flops;       // by rank of the world

  double peak_of(const Layout& layout) const;  // of its ranks together
  std::string device_words() const { return device.on_gpu ? device.words : backend.name(); }
};

// Every rank of the world calls it: all measure at the same time, so that the sum over a layout's
// ranks is what the machine gives them together.
RunMachine run_machine(Communicator& world, const RankDevice& device, Backend& backend,
                       Precision precision);
// The machine as the planner sees it: `named`, or what these ranks measure, together.
Cluster planning_cluster(const Config& config, const std::optional<Hardware>& named,
                         const RunMachine& machine, Communicator& world);

}  // namespace copus
