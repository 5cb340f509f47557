#include "copus/plan/trials.h"

#include <algorithm>

#include "copus/core/config_io.h"
#include "copus/core/median.h"

namespace copus {
namespace {

constexpr std::size_t kMostTrials = 6;
constexpr std::ptrdiff_t kMostOfALayout = 2;
constexpr double kWorst = 1.3;         // predicted step, over the best one's
constexpr double kShareOfSteps = 0.1;  // of the run, that all trials may take
constexpr double kShareOfRun = 0.02;   // that all trials may cost
constexpr double kTimedSteps = 1.0 + static_cast<double>(kTrialSteps);

double seconds_of(const PlanRow& row) {
  return row.predicted.seconds(row.micro_batches());
}

}  // namespace

std::vector<Configuration> trials_of(const Config& config, const Cluster& cluster, int world) {
  std::int64_t const batch = batch_at(config.batch, 0);
  PlanTable rows = planned_rows(config, cluster, world);
  std::erase_if(rows, [&](const PlanRow& row) { return row.configuration.batch != batch; });
  std::stable_sort(rows.begin(), rows.end(), [](const PlanRow& a, const PlanRow& b) {
    return seconds_of(a) < seconds_of(b);
  });
  std::vector<Configuration> trials;
  if (rows.empty()) return trials;
  double const best = seconds_of(rows.front());
  double const steps =
      static_cast<double>(config.train.tokens) / static_cast<double>(batch * config.model.seq_len);
  double const change = guessed_switch_seconds(config, cluster);
  double cost = 0.0;
  for (const PlanRow& row : rows) {
    const Layout& layout = row.configuration.shape.layout;
    if (trials.size() == kMostTrials || seconds_of(row) > kWorst * best) break;
    if (std::count_if(trials.begin(), trials.end(), [&](const Configuration& other) {
          return other.shape.layout == layout;
        }) == kMostOfALayout)
      continue;
    if (!trials.empty()) {
      // There, and from the last one to the fastest.
      double const more =
          kTimedSteps * (seconds_of(row) - best) + change * (trials.size() == 1 ? 2.0 : 1.0);
      double const timed = kTimedSteps * static_cast<double>(trials.size() + 1);
      if (timed > kShareOfSteps * steps || cost + more > kShareOfRun * steps * best) break;
      cost += more;
    }
    trials.push_back(row.configuration);
  }
  return trials;
}

double TrialTimes::median(std::size_t trial) const {
  return copus::median(seconds_[trial]);
}

bool TrialTimes::hopeless() const {
  constexpr double kFarBehind = 1.5;
  const std::vector<double>& mine = seconds_[present_];
  if (mine.empty()) return false;
  double const quickest = *std::min_element(mine.begin(), mine.end());
  for (std::size_t i = 0; i < present_; ++i)
    if (ran(i) && quickest > kFarBehind * median(i)) return true;
  return false;
}

std::size_t TrialTimes::fastest() const {
  std::size_t best = 0;
  for (std::size_t i = 1; i <= present_; ++i)
    if (ran(i) && median(i) < median(best)) best = i;
  return best;
}

}  // namespace copus
