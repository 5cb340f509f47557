#include "copus/plan/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

#include "copus/core/error.h"
#include "copus/core/units.h"
#include "copus/plan/goodput.h"
#include "plan/simulated_run.h"

namespace copus {
namespace {

using detail::Course;
using detail::CoursePlayer;

// The planner's part of a real run: it measures the noise scale, and its memory is planned for.
Config acting(const Config& config) {
  Config out = config;
  out.adapt.mode = AdaptMode::act;
  return out;
}

double goal_of(const Course& course) {
  const Config& config = course.config;
  std::int64_t const batch = config.batch.sequences;
  double useful = 0.0;
  for (std::int64_t tokens = 0; tokens < config.train.tokens;
       tokens += batch * config.model.seq_len) {
    useful = detail::after_step(course, useful, batch);
  }
  return useful;
}

std::int64_t steps_to_goal(const Course& course, std::int64_t batch) {
  std::int64_t steps = 0;
  for (double useful = 0.0; useful < course.goal; ++steps) {
    useful = detail::after_step(course, useful, batch);
  }
  return steps;
}

// The steps to the goal are the batch's alone, the seconds of each the candidate's.
const Candidate& best_fixed(const Course& course, const std::vector<Candidate>& candidates) {
  std::map<std::int64_t, std::int64_t> steps;
  const Candidate *best = nullptr, *nearest = nullptr;
  double least = std::numeric_limits<double>::infinity();
  for (const Candidate& candidate : candidates) {
    if (!candidate.feasible) {
      bool const less =
          nearest == nullptr || candidate.memory.plan.total() < nearest->memory.plan.total();
      if (less) nearest = &candidate;
      continue;
    }
    auto found = steps.find(candidate.batch);
    if (found == steps.end()) {
      found = steps.emplace(candidate.batch, steps_to_goal(course, candidate.batch)).first;
    }
    double const seconds = static_cast<double>(found->second) * candidate.step_seconds();
    if (seconds < least) {
      least = seconds;
      best = &candidate;
    }
  }
  if (best == nullptr) {
    COPUS_CHECK(nearest != nullptr, "a legal layout has a candidate");
    throw ConfigError(fmt::format(
        "cluster: no layout of this model fits into a rank's memory; the nearest, {}: {}",
        to_string(nearest->shape.layout), nearest->reason));
  }
  return *best;
}

// What `copus plan --critical-batch` would show first for the beginning of the run.
Configuration best_start(const Course& course, const std::vector<Candidate>& candidates,
                         const Candidate& fixed, bool same_layout) {
  const Config& config = course.config;
  double const phi = config.adapt.calibration * course.noise.at(0.0).critical_batch;
  Configuration best{fixed.shape, fixed.batch};
  double most = 0.0;
  for (const Candidate& candidate : candidates) {
    const StepShape& shape = candidate.shape;
    bool const open = candidate.feasible && shape.recompute == fixed.shape.recompute &&
                      (!same_layout || shape.layout == fixed.shape.layout) &&
                      has_estimate(shape.layout.dp, candidate.micro_batches());
    if (!open) continue;
    double const worth = goodput(config.adapt.objective, candidate.tokens_per_second(config.model),
                                 static_cast<double>(candidate.batch), phi);
    if (worth > most) {
      most = worth;
      best = {shape, candidate.batch};
    }
  }
  return best;
}

Config pinned_to(const Layout& layout, Config config) {
  ParallelConfig& p = config.parallel;
  p.dp = layout.dp;
  p.tp = layout.tp;
  p.pp = layout.pp;
  p.virtual_stages = layout.virtual_stages;
  p.zero = layout.zero;
  p.sequence_parallel = layout.sequence_parallel;
  return config;
}

SimulatedRun adaptive(const Course& course, const Config& config, int world,
                      const Configuration& first, const SimulationRules& rules) {
  PlannerMemory memory;
  if (rules.switch_seconds) memory.switch_seconds = std::max(detail::kFree, *rules.switch_seconds);
  RunPlanner planner(config, course.cluster, world, first, std::move(memory));
  return CoursePlayer(course, first, &planner).play();
}

}  // namespace

std::string_view name_of(Policy policy) {
  switch (policy) {
    case Policy::fixed:
      return "static";
    case Policy::adaptive_batch:
      return "adaptive_batch";
    case Policy::co_adaptive:
      return "co_adaptive";
  }
  return "";
}

const SimulatedRun& Simulation::run(Policy policy) const {
  if (policy == Policy::fixed) return fixed;
  return policy == Policy::adaptive_batch ? adaptive_batch : co_adaptive;
}

std::vector<std::string> simulation_problems(const Config& config) {
  std::vector<std::string> problems;
  auto const refuse = [&](bool asked, const char* key, const char* accepted) {
    if (asked) {
      problems.push_back(
          fmt::format("{}: is not played by simulate, whose batches and layouts "
                      "are its policies'; it takes {} here",
                      key, accepted));
    }
  };
  refuse(!config.batch.schedule.empty(), "batch.schedule",
         "batch.sequences, and batch.min and batch.max for the adaptive policies");
  refuse(!config.adapt.script.empty(), "adapt.script", "an empty list");
  refuse(config.adapt.check_every_tokens > 0, "adapt.check_every_tokens", "0");
  constexpr std::int64_t kMostSteps = 10'000'000, kMostDecisions = 100'000;
  std::int64_t const least = config.batch.min > 0 ? config.batch.min : config.batch.sequences;
  std::int64_t const step_tokens = least * config.model.seq_len;
  std::int64_t const steps = step_tokens > 0 ? config.train.tokens / step_tokens : 0;
  if (steps > kMostSteps) {
    problems.push_back(fmt::format(
        "train.tokens: {} are {} steps of the smallest batch, {}; simulate plays up to {} steps",
        config.train.tokens, steps, least, kMostSteps));
  } else if (steps / config.adapt.interval_steps > kMostDecisions) {
    problems.push_back(fmt::format(
        "adapt.interval_steps: {} makes {} decisions in {} steps; simulate plays up to {}, so it "
        "takes {} or more here",
        config.adapt.interval_steps, steps / config.adapt.interval_steps, steps, kMostDecisions,
        steps / kMostDecisions + 1));
  }
  return problems;
}

Simulation simulate(const Config& config, const Cluster& cluster, int world,
                    const SimulationRules& rules) {
  Config planned = acting(config);
  Course course{config, cluster, rules.noise};
  Simulation out;
  out.useful_tokens = course.goal = goal_of(course);
  std::vector<Candidate> const candidates =
      candidates_of(planned, cluster, world, CandidateUse::run);
  std::vector<Candidate> const alone = candidates_of(planned, cluster, world, CandidateUse::fixed);
  const Candidate& fixed = best_fixed(course, alone);
  Configuration const kept{fixed.shape, fixed.batch};
  planned.parallel.recompute = fixed.shape.recompute;
  out.fixed = CoursePlayer(course, kept, nullptr).play();
  out.adaptive_batch = adaptive(course, pinned_to(fixed.shape.layout, planned), world,
                                best_start(course, candidates, fixed, true), rules);
  out.co_adaptive =
      adaptive(course, planned, world, best_start(course, candidates, fixed, false), rules);
  return out;
}

}  // namespace copus
