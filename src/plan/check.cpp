#include "copus/plan/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "copus/core/error.h"
#include "copus/plan/goodput.h"

namespace copus {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double sum(std::span<const double> x) {
  double total = 0.0;
  for (double value : x) total += value;
  return total;
}

std::vector<double> difference(const std::vector<double>& a, const std::vector<double>& b) {
  COPUS_CHECK(a.size() == b.size(), "losses over the same stretches");
  std::vector<double> out;
  for (std::size_t i = 0; i < a.size(); ++i) out.push_back(a[i] - b[i]);
  return out;
}

// Standard error of sum(a) / sum(b) over their common parts (the linearised ratio estimator):
// parts of unequal size scatter alike in both, and do not count as noise.
double ratio_error(std::span<const double> a, std::span<const double> b) {
  auto const n = static_cast<double>(a.size());
  if (a.size() < 2) return kInfinity;
  double const total = sum(b), ratio = sum(a) / total;
  double squares = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    double const off = a[i] - ratio * b[i];
    squares += off * off;
  }
  return std::sqrt(n / (n - 1.0) * squares) / std::abs(total);
}

// r_k as the formula has it.
double formula(Objective objective, double batch, double own, double phi) {
  return progress_per_token(objective, batch, phi) / progress_per_token(objective, own, phi);
}

// The phi between `low` and `high` at which f(phi), which grows with phi, is `value`.
template <class F>
double solve(const F& f, double value, double low, double high) {
  if (f(low) >= value) return low;
  if (f(high) <= value) return high;
  for (int i = 0; i < 200 && high / low > 1.0 + 1e-12; ++i) {
    double const middle = std::sqrt(low * high);
    (f(middle) < value ? low : high) = middle;
  }
  return std::sqrt(low * high);
}

// The branches beside the run's own, as the formula sees them.
class Costs {
 public:
  Costs(const Check& check, Objective objective) : check_(check), objective_(objective) {
    const Branch& own = check.branches.front();
    constexpr double kNone = 1e-9;  // of a batch: a phi that is as good as 0
    for (std::size_t i = 1; i < check.branches.size(); ++i) {
      const Branch& branch = check.branches[i];
      double const least = at(branch, kNone * static_cast<double>(own.batch));
      double const most = at(branch, kInfinity);
      bool const diverged = !std::isfinite(branch.loss);
      progress_.push_back(diverged ? least : std::clamp(branch.progress, least, most));
      free_ = free_ && !diverged && branch.progress >= most;
    }
  }

  // No larger batch has cost anything.
  bool none() const { return free_; }

  // The least squares' phi. The sum over branches need not have a single minimum, so it is looked
  // for on a grid first.
  double nearest(double low, double high) const {
    constexpr int kGrid = 256;
    double const step = std::pow(high / low, 1.0 / kGrid);
    double best = low;
    for (int i = 1; i <= kGrid; ++i) {
      double const phi = low * std::pow(step, i);
      if (squares(phi) < squares(best)) best = phi;
    }
    return refine(std::max(low, best / step), std::min(high, best * step));
  }

  // The phi that each branch excludes from below with two standard errors; the highest of them.
  double bound(double low, double high) const {
    double most = low;
    for (std::size_t i = 1; i < check_.branches.size(); ++i) {
      const Branch& branch = check_.branches[i];
      double const surely = branch.progress - 2.0 * branch.error;
      auto const f = [&](double phi) { return at(branch, phi); };
      most = std::max(most, solve(f, surely, low, high));
    }
    return most;
  }

 private:
  double at(const Branch& branch, double phi) const {
    return formula(objective_, static_cast<double>(branch.batch),
                   static_cast<double>(check_.branches.front().batch), phi);
  }

  double squares(double phi) const {
    double total = 0.0;
    for (std::size_t i = 0; i < progress_.size(); ++i) {
      double const off = progress_[i] - at(check_.branches[i + 1], phi);
      total += off * off;
    }
    return total;
  }

  // Golden section, in log(phi).
  double refine(double low, double high) const {
    double const part = 2.0 / (1.0 + std::sqrt(5.0));
    for (int i = 0; i < 100 && high / low > 1.0 + 1e-10; ++i) {
      double const reach = std::pow(high / low, part);
      if (squares(high / reach) <= squares(low * reach)) {
        high = low * reach;
      } else {
        low = high / reach;
      }
    }
    return std::sqrt(low * high);
  }

  const Check& check_;
  Objective objective_;
  std::vector<double> progress_;
  bool free_ = true;
};

CheckFinding nothing(double correction, const std::string& why) {
  CheckFinding out;
  out.correction = correction;
  out.reason = "nothing learned: " + why;
  return out;
}

// "batch 16 brought 97 % of what batch 8 did, 32 diverged"
std::string branches_text(const Check& check) {
  std::string text;
  for (std::size_t i = 1; i < check.branches.size(); ++i) {
    const Branch& branch = check.branches[i];
    text += fmt::format("{}{} {}", i > 1 ? ", " : "batch ", branch.batch,
                        std::isfinite(branch.loss)
                            ? fmt::format("brought {:.0f} %", 100.0 * branch.progress)
                            : "diverged");
    if (i == 1) text += fmt::format(" of what batch {} did", check.branches.front().batch);
  }
  return text;
}

std::string finding_text(const Check& check, const CheckFinding& found, double phi) {
  constexpr double kRounding = 1.0 + 1e-6;
  std::string end;
  if (found.correction * kRounding >= kMostCorrection) end = "; a check moves it no further up";
  if (found.correction <= kRounding / kMostCorrection) end = "; a check moves it no further down";
  return fmt::format("{}: the critical batch is {}{:.4g}, where the noise scale says {:.4g}{}",
                     branches_text(check), found.at_least ? "at least " : "", *found.critical_batch,
                     phi, end);
}

}  // namespace

void measure_own(Branch& branch, const PartedLoss& from, const PartedLoss& after) {
  branch.loss = after.mean;
  branch.progress = 1.0;
  double const relative = (from.mean - after.mean) / from.mean;
  branch.error = ratio_error(difference(from.parts, after.parts), from.parts) / relative;
}

void measure_other(Branch& branch, const PartedLoss& from, const PartedLoss& own,
                   const PartedLoss& after) {
  branch.loss = after.mean;
  branch.progress = (from.mean - after.mean) / (from.mean - own.mean);
  branch.error =
      ratio_error(difference(from.parts, after.parts), difference(from.parts, own.parts));
}

CheckFinding find(const Check& check, Objective objective, double phi, double correction) {
  if (check.branches.size() < 2) return nothing(correction, "no batch beside the run's own");
  const Branch& own = check.branches.front();
  double const gain = check.from_loss - own.loss;
  if (!std::isfinite(gain))
    return nothing(correction, fmt::format("batch {} itself diverged", own.batch));
  if (!(gain > 0.0 && own.error * kClearGain <= 1.0)) {
    return nothing(correction,
                   fmt::format("over so few tokens batch {} itself gained {:.4f} nats, which is "
                               "not clearly above 0 (standard error {:.4f})",
                               own.batch, gain, std::abs(own.error * gain)));
  }
  Costs const costs(check, objective);
  double const low = phi / kMostCorrection, high = phi * kMostCorrection;
  CheckFinding out;
  out.at_least = costs.none();
  if (out.at_least) {
    // A bound takes nothing back that was known.
    out.critical_batch = std::max(costs.bound(low, high), std::min(high, phi * correction));
  } else {
    out.critical_batch = costs.nearest(low, high);
  }
  out.correction = *out.critical_batch / phi;
  out.reason = finding_text(check, out, phi);
  return out;
}

CheckFinding learn(PlannerMemory& memory, const Check& check, const PlannerRules& rules,
                   const NoiseScale& noise) {
  if (!noise.resolved) return nothing(memory.correction, "the noise scale is unresolved");
  CheckFinding const found =
      find(check, rules.objective, rules.calibration * noise.critical_batch, memory.correction);
  memory.correction = found.correction;
  return found;
}

}  // namespace copus
