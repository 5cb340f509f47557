// The options of a decision against the present: what each is worth, how surely, for how long.
#pragma once
#include <array>
#include <optional>

#include "copus/plan/goodput.h"
#include "copus/plan/planner.h"

namespace copus::detail {

// Resolved, with an interval that is one.
bool usable(const NoiseScale& noise);

// log(critical batch) as a normal distribution with two widths, one for each half of the interval,
// held as equally likely points.
class Noise {
 public:
  static constexpr std::size_t kPoints = 33;

  Noise(const NoiseScale& scale, const PlannerRules& rules);
  double phi() const { return phi_; }
  const std::array<double, kPoints>& points() const { return points_; }

 private:
  double phi_;  // calibrated
  std::array<double, kPoints> points_{};
};

// A row of the table as the run knows it.
struct Option {
  const PlanRow* row = nullptr;
  LivePrice price;
  double speed = 0.0;      // tokens a second
  double worth = 0.0;      // goodput at the estimated noise scale
  double effective = 0.0;  // goodput over the horizon, the change's cost included
  double cost_seconds = 0.0;
  Change change = Change::none;

  Rate rate() const { return {speed, static_cast<double>(row->configuration.batch)}; }
};

class Weighing {
 public:
  Weighing(const PlanTable& table, const LiveCosts& live, const PlannerRules& rules,
           const Situation& now, const std::vector<HeldBack>& held);

  const Option& present() const { return present_; }
  double phi() const { return noise_ ? noise_->phi() : 0.0; }

  // The best others within reach, best first: a few of each kind. What is sure must not be hidden
  // behind many that promise more and are not: batches of the present shape, shapes that have run,
  // shapes that have not.
  std::vector<Option> best() const;

  // That `option` is worth more than 1 + gain times the present one: over the noise scale's points,
  // and, where asked for, with the predictions' errors as a normal factor.
  enum class Doubt { noise, noise_and_prediction };
  double probability(const Option& option, double gain, Doubt doubt) const;

  // Seconds that the change saves over the horizon, its cost not counted.
  double saved_seconds(const Option& option) const;

  // Relative, one standard deviation, of the option's speed against the present one's.
  double error_between(const Option& option) const;

 private:
  bool within_reach(const Configuration& other) const;
  Option option_of(const PlanRow& row) const;
  double value(const Option& option, double phi) const;
  double tokens_until_crossing(const Option& option) const;
  double effective(const Option& option) const;

  const PlanTable& table_;
  const LiveCosts& live_;
  const PlannerRules& rules_;
  const Situation& now_;
  const std::vector<HeldBack>& held_;
  std::optional<Noise> noise_;
  Option present_;
};

}  // namespace copus::detail
