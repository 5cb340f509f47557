// Which source a sample comes from: a fixed, evenly spread order with the proportions of the
// weights.
#pragma once
#include <cstdint>
#include <vector>

namespace copus::detail {

struct Draw {
  std::size_t source = 0;
  std::int64_t index = 0;  // how many samples before this one came from the same source
};

// The order repeats after at most 2^20 samples. Within any prefix of it every source has its exact
// share, less than one sample off (Tijdeman's solution of the chairman assignment problem, 1980).
// Weights that no such period expresses are rounded to 2^-20 of the whole.
class Mixture {
 public:
  explicit Mixture(const std::vector<double>& weights);  // two or more, all > 0 and finite
  Draw operator()(std::int64_t sample) const;
  std::int64_t period() const { return static_cast<std::int64_t>(slots_.size()); }

 private:
  struct Slot {
    std::uint32_t source, before;  // before: earlier slots of this source in the period
  };
  std::vector<std::int64_t> counts_;  // of each source in a period
  std::vector<Slot> slots_;
};

}  // namespace copus::detail
