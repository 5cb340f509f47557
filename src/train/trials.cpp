#include "train/trials.h"

#include <fmt/format.h>

#include <utility>

#include "copus/comm/broadcast.h"

namespace copus {
namespace {

std::string words_of(const RunPlan& plan) {
  return fmt::format("{} in micro-batches of {}", to_string(plan.layout), plan.micro);
}

}  // namespace

std::vector<RunPlan> starting_plans(const Config& config, const Cluster& cluster,
                                    Communicator& world) {
  std::vector<RunPlan> plans;
  if (world.rank() == 0) {
    for (const Configuration& trial : trials_of(config, cluster, world.size()))
      plans.push_back({trial.shape.layout, trial.shape.micro, {}});
  }
  std::uint64_t count = plans.size();
  broadcast_value(world, count, 0);
  plans.resize(count);
  for (RunPlan& plan : plans) {
    ChosenPlan chosen = chosen_plan(plan);
    broadcast_value(world, chosen, 0);
    plan = run_plan(chosen);
  }
  return plans;
}

Trials::Trials(Communicator& world, std::vector<RunPlan> plans)
    : world_(world), plans_(std::move(plans)), times_(plans_.size()) {}

std::optional<Trials::Outcome> Trials::next() {
  if (!std::exchange(refused_, false)) {
    std::uint32_t ends = times_.steps() >= kTrialSteps || times_.hopeless() ? 1 : 0;
    broadcast_value(world_, ends, 0);
    if (ends == 0) return {};
  }
  if (!times_.at_last()) {
    times_.next();
    const RunPlan& plan = plans_[times_.present()];
    return Outcome{
        plan, false,
        fmt::format("trial {} of {}: {}", times_.present() + 1, plans_.size(), words_of(plan))};
  }
  auto best = static_cast<std::uint64_t>(times_.fastest());
  broadcast_value(world_, best, 0);
  std::string others;
  for (std::size_t i = 0; i < plans_.size(); ++i) {
    if (i == best) continue;
    if (!others.empty()) others += ", ";
    others += times_.ran(i) ? fmt::format("{:.4g} s in {}", times_.median(i), words_of(plans_[i]))
                            : fmt::format("{} was refused", words_of(plans_[i]));
  }
  return Outcome{plans_[best], true,
                 fmt::format("after {} trials {} is the fastest, {:.4g} s a step; {}",
                             plans_.size(), words_of(plans_[best]), times_.median(best), others)};
}

}  // namespace copus
