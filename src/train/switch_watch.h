// Whether a switch kept its promise: throughput and the groups' bandwidth before and after.
#pragma once
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "copus/comm/mesh.h"

namespace copus {

// Fed with every step; says its word once, some steps after a switch.
class SwitchWatch {
 public:
  // A step of an active rank in the mesh's layout, in tokens/s. Returns the fields of a `verify`
  // event when it has come to one.
  std::optional<nlohmann::json> add(double rate, const Mesh& mesh);
  // The steps from now on are those of another layout.
  void switched();

 private:
  // Recent steps in one layout.
  struct Window {
    std::vector<double> rates;                    // tokens/s
    std::map<std::string, GroupTraffic> traffic;  // by group, of this rank
    double rate() const;                          // median; 0: no step yet
  };
  nlohmann::json result() const;

  Window before_, now_;
  std::map<std::string, GroupTraffic> seen_;  // running totals after the last step
  bool fresh_ = true;                         // the next step is the first in its layout
  bool pending_ = false;
};

}  // namespace copus
