#include "plan/weighing.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "copus/core/error.h"
#include "plan/normal.h"
#include "plan/quantile.h"

namespace copus::detail {

bool usable(const NoiseScale& noise) {
  return noise.resolved && noise.low > 0.0 && noise.critical_batch >= noise.low &&
         noise.high >= noise.critical_batch && std::isfinite(noise.high);
}

namespace {

// The middles of kPoints equally likely parts of a standard normal.
const std::array<double, Noise::kPoints>& normal_points() {
  static const std::array<double, Noise::kPoints> kMiddles = [] {
    std::array<double, Noise::kPoints> middles{};
    for (std::size_t i = 0; i < middles.size(); ++i) {
      // normal_quantile takes the probability between -z and z.
      double const p = (static_cast<double>(i) + 0.5) / Noise::kPoints;
      middles[i] = std::copysign(normal_quantile(std::abs(2.0 * p - 1.0)), p - 0.5);
    }
    return middles;
  }();
  return kMiddles;
}

}  // namespace

Noise::Noise(const NoiseScale& scale, const PlannerRules& rules)
    : phi_(rules.calibration * scale.critical_batch) {
  double const z = normal_quantile(rules.confidence);
  double const below = std::log(scale.critical_batch / scale.low) / z;
  double const above = std::log(scale.high / scale.critical_batch) / z;
  for (std::size_t i = 0; i < kPoints; ++i) {
    double const at = normal_points()[i];
    points_[i] = phi_ * std::exp(at * (at < 0.0 ? below : above));
  }
}

Weighing::Weighing(const PlanTable& table, const LiveCosts& live, const PlannerRules& rules,
                   const Situation& now, const std::vector<HeldBack>& held)
    : table_(table), live_(live), rules_(rules), now_(now), held_(held) {
  if (usable(now.noise)) noise_.emplace(now.noise, rules);
  auto const row = std::find_if(table.begin(), table.end(), [&](const PlanRow& candidate) {
    return candidate.configuration == now.present;
  });
  COPUS_CHECK(row != table.end(), "the present configuration is one of the table's");
  present_ = option_of(*row);
  present_.effective = present_.worth;
}

std::vector<Option> Weighing::best() const {
  constexpr std::size_t kOfAKind = 16;
  auto const better = [](const Option& a, const Option& b) { return a.effective > b.effective; };
  std::array<std::vector<Option>, 3> kinds;
  for (const PlanRow& row : table_) {
    if (!within_reach(row.configuration)) continue;
    Option option = option_of(row);
    option.effective = effective(option);
    std::size_t const kind = option.change == Change::batch ? 0 : option.price.measured ? 1 : 2;
    kinds[kind].push_back(option);
  }
  std::vector<Option> options;
  for (std::vector<Option>& kind : kinds) {
    auto const count = static_cast<std::ptrdiff_t>(std::min(kOfAKind, kind.size()));
    std::partial_sort(kind.begin(), kind.begin() + count, kind.end(), better);
    options.insert(options.end(), kind.begin(), kind.begin() + count);
  }
  std::stable_sort(options.begin(), options.end(), better);
  return options;
}

double Weighing::probability(const Option& option, double gain, Doubt doubt) const {
  constexpr double kCertain = 1e-6;
  double const sigma = doubt == Doubt::noise ? kCertain : error_between(option);
  double sum = 0.0;
  std::size_t count = 0;
  auto const add = [&](double phi) {
    double const ratio = std::log(value(option, phi) / value(present_, phi));
    sum += normal_cdf((ratio - std::log1p(gain)) / sigma);
    ++count;
  };
  if (noise_) {
    for (double phi : noise_->points()) add(phi);
  } else {
    add(std::numeric_limits<double>::infinity());  // same batch: phi has no part in it
  }
  return sum / static_cast<double>(count);
}

double Weighing::saved_seconds(const Option& option) const {
  return tokens_until_crossing(option) / present_.speed * (1.0 - present_.worth / option.worth);
}

bool Weighing::within_reach(const Configuration& other) const {
  if (other == now_.present) return false;
  if (!noise_ && other.batch != now_.present.batch) return false;
  // The present shape is never held: its batches stay open.
  bool const held = !(other.shape == now_.present.shape) &&
                    std::any_of(held_.begin(), held_.end(), [&](const HeldBack& h) {
                      return h.until_step > now_.step && h.holds(other.shape);
                    });
  if (held) return false;
  double const ratio = static_cast<double>(other.batch) / static_cast<double>(now_.present.batch);
  constexpr double kRounding = 1.0 + 1e-9;
  return ratio <= rules_.trust * kRounding && ratio * rules_.trust * kRounding >= 1.0;
}

Option Weighing::option_of(const PlanRow& row) const {
  Option out;
  out.row = &row;
  out.price = price(live_, row.configuration.shape, row.predicted, row.micro_batches());
  out.speed = static_cast<double>(row.configuration.batch * now_.sequence_tokens) /
              out.price.line.seconds(row.micro_batches());
  out.worth = value(out, noise_ ? noise_->phi() : std::numeric_limits<double>::infinity());
  const StepShape &shape = row.configuration.shape, &is = now_.present.shape;
  if (shape == is) {
    out.change = row.configuration == now_.present ? Change::none : Change::batch;
    return out;
  }
  out.change = Change::layout;
  bool const moves = !(shape.layout == is.layout && shape.recompute == is.recompute);
  out.cost_seconds = moves ? now_.switch_seconds : now_.micro_seconds;
  return out;
}

double Weighing::value(const Option& option, double phi) const {
  return goodput(rules_.objective, option.speed,
                 static_cast<double>(option.row->configuration.batch), phi);
}

// Two batches of one shape share its scale; only what moves between them is uncertain.
double Weighing::error_between(const Option& option) const {
  constexpr double kLeast = 1e-3;
  if (option.row->configuration.shape == now_.present.shape && option.price.measured) {
    return std::max(kLeast, option.price.split_error);
  }
  return std::max(kLeast, std::hypot(option.price.error(), present_.price.error()));
}

double Weighing::tokens_until_crossing(const Option& option) const {
  if (!noise_ || now_.noise_growth == 0.0) return now_.horizon_tokens;
  std::optional<double> const at = crossing(rules_.objective, present_.rate(), option.rate());
  if (!at) return now_.horizon_tokens;
  double const tokens = std::log(*at / noise_->phi()) / now_.noise_growth;
  return tokens > 0.0 ? std::min(tokens, now_.horizon_tokens) : now_.horizon_tokens;
}

// Useful tokens over the horizon by the seconds they take, the change's included.
double Weighing::effective(const Option& option) const {
  if (option.cost_seconds <= 0.0) return option.worth;
  double const useful = tokens_until_crossing(option) / present_.speed * present_.worth;
  return useful > 0.0 ? useful / (useful / option.worth + option.cost_seconds) : 0.0;
}

}  // namespace copus::detail
