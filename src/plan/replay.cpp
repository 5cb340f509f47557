#include "copus/plan/replay.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "copus/core/error.h"
#include "copus/plan/planner_memory.h"
#include "copus/plan/run_planner.h"
#include "plan/layout_json.h"

namespace copus {
namespace {

using nlohmann::json;

std::optional<double> number(const json& in, const char* key) {
  if (!in.contains(key) || in.at(key).is_null()) return {};
  return in.at(key).get<double>();
}

GnsState state_of(const std::string& text) {
  for (GnsState const state : {GnsState::cold, GnsState::warm}) {
    if (text == name_of(state)) return state;
  }
  return GnsState::unresolved;
}

GnsReading reading_of(const json& in) {
  GnsReading out;
  out.state = state_of(in.at("state").get<std::string>());
  out.reason = in.value("reason", "");
  out.critical_batch = number(in, "critical_batch");
  out.low = number(in, "low");
  out.high = number(in, "high");
  return out;
}

// A loss that was not finite is null.
double finite_or_nan(const json& in, const char* key) {
  return number(in, key).value_or(std::numeric_limits<double>::quiet_NaN());
}

Check check_of(const json& in) {
  Check check;
  check.from_loss = finite_or_nan(in, "from_loss");
  for (const json& branch : in.at("branches")) {
    check.branches.push_back({branch.at("batch").get<std::int64_t>(),
                              branch.at("steps").get<std::int64_t>(), branch.at("lr").get<double>(),
                              finite_or_nan(branch, "loss"), finite_or_nan(branch, "progress"),
                              finite_or_nan(branch, "error")});
  }
  return check;
}

// Goes through the lines of one file.
class Player {
 public:
  Player(const Config& config, const std::string& name) : config_(config), name_(name) {}

  void line(const json& in) {
    std::string const event = in.value("event", "");
    if (event == "planner") {
      start(in);
    } else if (planner_) {
      if (event.empty()) step(in);
      // A script's and a trial's were not weighed.
      if (event == "decision" && !in.at("predicted").is_null()) decide(in);
      if (event == "reshard") reshard(in);
      if (event == "verify") verify(in);
      if (event == "check") check(in);
    }
  }
  bool started() const { return planner_.has_value(); }
  Replay take() { return std::move(replay_); }

 private:
  Configuration configuration_of(const json& plan) const {
    Recompute const recompute = config_.parallel.recompute.value_or(Recompute::none);
    return {
        {detail::layout_from(plan, name_), plan.at("micro_batch").get<std::int64_t>(), recompute},
        plan.at("batch").get<std::int64_t>()};
  }

  void start(const json& in) {
    Cluster cluster = cluster_of(config_.cluster, parse_hardware(in.at("hardware").dump(), name_));
    cluster.nodes = in.at("nodes").get<std::int64_t>();
    cluster.gpus_per_node = in.at("gpus_per_node").get<std::int64_t>();
    present_ = configuration_of(in.at("plan"));
    planner_.emplace(config_, cluster, in.at("world").get<int>(), present_,
                     parse_memory(in.at("memory").dump(), name_));
    fresh_ = true;
    noise_.reset();
  }

  void step(const json& in) {
    present_.batch = in.at("batch").get<std::int64_t>();
    if (in.contains("gns")) noise_ = reading_of(in.at("gns"));
    if (std::exchange(fresh_, false)) return;
    planner_->observe(present_, in.at("seconds").get<double>(), number(in, "micro_batch_seconds"));
    ++steps_;
  }

  void decide(const json& in) {
    ReplayedDecision out;
    out.step = in.at("step").get<std::int64_t>();
    out.recorded_to = configuration_of(in.at("to"));
    out.recorded_reason = in.at("reason").get<std::string>();
    out.recorded_predicted = in.at("predicted").get<double>();
    out.recorded_current = in.at("current").get<double>();
    out.recorded_probability = in.at("probability").get<double>();
    Moment const now{out.step, in.at("tokens").get<std::int64_t>(), noise_};
    bool const acts = config_.adapt.mode == AdaptMode::act && config_.adapt.script.empty();
    out.decision = planner_->decide(now, configuration_of(in.at("from")), acts);
    replay_.decisions.push_back(std::move(out));
  }

  void reshard(const json& in) {
    Configuration const from = configuration_of(in.at("from")), to = configuration_of(in.at("to"));
    auto const step = in.at("step").get<std::int64_t>();
    if (in.contains("refused")) {
      planner_->refused(to.shape, step);
      return;
    }
    present_ = to;
    planner_->changed(from.shape, to.shape, step, in.at("seconds").at("total").get<double>());
    fresh_ = true;
    steps_ = 0;
    next_look_ = kFirstLook;
  }

  void verify(const json& in) {
    if (!in.contains("reason")) return;  // of a scripted switch
    // Looks that asked for more steps changed nothing: only the last one is in the recording.
    while (next_look_ < steps_) next_look_ *= 2;
    auto const step = in.at("step").get<std::int64_t>();
    replay_.verdicts.push_back(
        {step, in.at("kept").get<bool>(), planner_->settle(step, next_look_ >= kLastLook)});
  }

  void check(const json& in) {
    replay_.checks.push_back({in.at("step").get<std::int64_t>(), number(in, "critical_batch"),
                              in.at("calibration").get<double>(),
                              planner_->learn(check_of(in), noise_)});
  }

  const Config& config_;
  const std::string& name_;
  std::optional<RunPlanner> planner_;
  Configuration present_;
  std::optional<GnsReading> noise_;
  bool fresh_ = true;
  std::int64_t steps_ = 0, next_look_ = kFirstLook;
  Replay replay_;
};

}  // namespace

Replay replay(const Config& config, const std::string& metrics, const std::string& name) {
  Player player(config, name);
  std::istringstream lines(metrics);
  int number = 0;
  for (std::string text; std::getline(lines, text);) {
    ++number;
    try {
      player.line(json::parse(text));
    } catch (const json::exception& error) {
      throw ConfigError(
          fmt::format("{}:{}: not a line of a run's metrics: {}", name, number, error.what()));
    }
  }
  if (!player.started()) {
    throw ConfigError(fmt::format(
        "{}: has no planner event; a run with adapt.mode suggest or act writes one", name));
  }
  return player.take();
}

}  // namespace copus
