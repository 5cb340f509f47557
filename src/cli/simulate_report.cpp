#include "cli/simulate_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "copus/core/config_io.h"
#include "copus/core/printable.h"
#include "copus/core/units.h"
#include "copus/plan/decision_json.h"
#include "copus/plan/goodput.h"

namespace copus {
namespace {

using nlohmann::json;

constexpr Policy kPolicies[] = {Policy::fixed, Policy::adaptive_batch, Policy::co_adaptive};

double tokens_per_second(const SimulatedRun& run) {
  return static_cast<double>(run.end.tokens) / run.end.seconds;
}

double mean_batch(const SimulateReport& report, const SimulatedRun& run) {
  return static_cast<double>(run.end.tokens) /
         static_cast<double>(run.end.step * report.config.model.seq_len);
}

// Against the static run's time: 1.1 is a tenth faster.
double speedup(const SimulateReport& report, const SimulatedRun& run) {
  return report.simulation.fixed.end.seconds / run.end.seconds;
}

NoisePoint noise_at_end(const SimulateReport& report) {
  return report.curve.at(report.simulation.useful_tokens);
}

json changes_json(const SimulatedRun& run) {
  json list = json::array();
  for (const SimulatedEvent& event : run.events) {
    const auto* const decided = std::get_if<SimulatedDecision>(&event);
    if (decided == nullptr || decided->decision.change == Change::none) continue;
    json one = detail::acted_json(decided->decision);
    one.update({{"step", decided->at.step},
                {"tokens", decided->at.tokens},
                {"useful_tokens", decided->at.useful_tokens},
                {"elapsed_seconds", decided->at.seconds}});
    list.push_back(std::move(one));
  }
  return list;
}

// Of the last decision: why the run ends as it does. Empty without decisions.
std::string last_reason(const SimulatedRun& run) {
  for (auto event = run.events.rbegin(); event != run.events.rend(); ++event) {
    const auto* const decided = std::get_if<SimulatedDecision>(&*event);
    if (decided != nullptr) return decided->decision.reason;
  }
  return "";
}

json run_json(const SimulateReport& report, Policy policy) {
  const SimulatedRun& run = report.simulation.run(policy);
  return {{"policy", name_of(policy)},
          {"seconds", run.end.seconds},
          {"speedup", speedup(report, run)},
          {"useful_tokens", run.end.useful_tokens},
          {"tokens", run.end.tokens},
          {"steps", run.end.step},
          {"mean_batch", mean_batch(report, run)},
          {"tokens_per_second", tokens_per_second(run)},
          {"useful_tokens_per_second", run.end.useful_tokens / run.end.seconds},
          {"mfu", run.mfu},
          {"batch_changes", run.batch_changes},
          {"micro_batch_changes", run.micro_changes},
          {"layout_changes", run.layout_changes},
          {"rollbacks", run.rollbacks},
          {"switch_seconds", run.switch_seconds},
          {"first", to_json(run.first)},
          {"final", to_json(run.last)},
          {"decisions", run.decisions},
          {"changes", changes_json(run)},
          {"last_reason", last_reason(run)}};
}

void print_title(const SimulateReport& report) {
  const Config& config = report.config;
  const Hardware& hardware = report.cluster.hardware;
  fmt::print("{} rank{} in nodes of {}, {} ({})\n", report.world, report.world == 1 ? "" : "s",
             report.cluster.gpus_per_node, printable_line(hardware.name),
             printable_line(hardware.source));
  fmt::print("{} tokens a sequence, {}; progress {}, calibration {:g}\n", config.model.seq_len,
             name_of(config.train.precision), name_of(config.adapt.objective),
             config.adapt.calibration);
  fmt::print("noise scale {}{}: {:.4g} sequences at the start, {:.4g} at the goal\n",
             printable_line(report.noise), report.assumed ? " (assumed; see --noise)" : "",
             report.curve.at(0.0).critical_batch, noise_at_end(report).critical_batch);
  fmt::print("goal: the progress of {} tokens at batch {}, which are {} useful tokens\n\n",
             human_count(static_cast<double>(config.train.tokens)), config.batch.sequences,
             human_count(report.simulation.useful_tokens));
}

void print_row(const SimulateReport& report, Policy policy) {
  const SimulatedRun& run = report.simulation.run(policy);
  fmt::print(
      "{:<15}{:>9}{:>9}{:>9}{:>9}{:>9}{:>11}{:>8.1f}{:>8}{:>7}{:>8}{:>9}\n", name_of(policy),
      human_duration(run.end.seconds),
      policy == Policy::fixed ? "-"
                              : fmt::format("{:+.1f} %", 100.0 * (speedup(report, run) - 1.0)),
      human_count(static_cast<double>(run.end.tokens)), run.end.step,
      human_count(mean_batch(report, run)), human_count(tokens_per_second(run)), 100.0 * run.mfu,
      run.batch_changes, run.micro_changes, run.layout_changes, human_duration(run.switch_seconds));
}

std::string where(const RunPoint& at) {
  return fmt::format("step {}, {} tokens, {}", at.step, human_count(static_cast<double>(at.tokens)),
                     human_duration(at.seconds));
}

struct ChangePrinter {
  std::string reason;  // of the decision that comes before its change

  void operator()(const SimulatedStep&) {}
  void operator()(const SimulatedDecision& event) { reason = event.decision.reason; }
  void operator()(const SimulatedSwitch& event) {
    fmt::print("  {}: {}to {}{}\n", where(event.at), event.rollback ? "rolled back " : "",
               to_string(event.to),
               event.kind == Change::layout ? fmt::format(", in {:.3g} s", event.seconds) : "");
    if (!event.rollback) fmt::print("    because {}\n", reason);
  }
  void operator()(const SimulatedVerdict& event) {
    fmt::print("  {}: {}\n", where(event.at), event.verdict.reason);
  }
};

void print_course(const SimulateReport& report, Policy policy) {
  const SimulatedRun& run = report.simulation.run(policy);
  fmt::print("\n{}: {} {}\n", name_of(policy),
             policy == Policy::fixed ? "all the way" : "begins with", to_string(run.first));
  if (policy == Policy::fixed) return;
  ChangePrinter printer;
  for (const SimulatedEvent& event : run.events) std::visit(printer, event);
  fmt::print("  {} at the end: {}\n", where(run.end), to_string(run.last));
  if (run.decisions > 0) {
    fmt::print("    the last of {} decisions: {}\n", run.decisions, last_reason(run));
  }
}

}  // namespace

json as_json(const SimulateReport& report) {
  const Config& config = report.config;
  json policies = json::array();
  for (Policy policy : kPolicies) policies.push_back(run_json(report, policy));
  return {{"model", to_json(config).at("model")},
          {"world", report.world},
          {"hardware", report.cluster.hardware.name},
          {"objective", name_of(config.adapt.objective)},
          {"calibration", config.adapt.calibration},
          {"train_tokens", config.train.tokens},
          {"useful_tokens", report.simulation.useful_tokens},
          {"noise",
           {{"curve", report.noise},
            {"assumed", report.assumed},
            {"start", report.curve.at(0.0).critical_batch},
            {"end", noise_at_end(report).critical_batch}}},
          {"policies", std::move(policies)}};
}

std::string text_of(const json& document, int indent) {
  return document.dump(indent, ' ', false, json::error_handler_t::replace) + "\n";
}

void print_table(const SimulateReport& report) {
  print_title(report);
  fmt::print("{:<15}{:>9}{:>9}{:>9}{:>9}{:>9}{:>11}{:>8}{:>8}{:>7}{:>8}{:>9}\n", "policy", "time",
             "gain", "tokens", "steps", "batch", "tokens/s", "MFU %", "batches", "micros",
             "layouts", "lost");
  for (Policy policy : kPolicies) print_row(report, policy);
  fmt::print(
      "batch: mean; batches, micros, layouts: changes of each; lost: to changes of layout and "
      "micro-batch\n");
  for (Policy policy : kPolicies) print_course(report, policy);
}

}  // namespace copus
