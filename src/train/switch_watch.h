// What a switch brought: throughput and the groups' bandwidth before and after.
#pragma once
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "copus/comm/mesh.h"

namespace copus {

// Fed with every step; says its word once, some steps after a switch, or when it is asked.
class SwitchWatch {
 public:
  // A step of an active rank in the mesh's layout, in tokens/s.
  void add(double rate, const Mesh& mesh);
  // What the groups have done since the last step is none of a step's.
  void look_away(const Mesh& mesh);
  // The steps from now on are those of another layout.
  void switched();

  // Whether the steps since a switch are enough for a word; it is said once. The same on every rank
  // that has called switched and count alike.
  bool ready() const { return pending_ && steps_ > kSteps; }
  // The fields of a `verify` event; ends the watch.
  nlohmann::json result();
  // The watch of a rank that has no part in the layout: it only counts.
  void count() { ++steps_; }
  // Whether the next step is the first in its layout, which touches new memory.
  bool fresh() const { return steps_ == 0; }

 private:
  static constexpr std::int64_t kSteps = 3;  // after the first
  // Recent steps in one layout.
  struct Window {
    std::vector<double> rates;                    // tokens/s
    std::map<std::string, GroupTraffic> traffic;  // by group, of this rank
    double rate() const;                          // median; 0: no step yet
  };

  Window before_, now_;
  std::map<std::string, GroupTraffic> seen_;  // running totals after the last step
  std::int64_t steps_ = 0;                    // in the present layout
  bool pending_ = false;
};

}  // namespace copus
