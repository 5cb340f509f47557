#include "cli/plan_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "copus/core/config_io.h"
#include "copus/core/printable.h"
#include "copus/core/units.h"
#include "copus/plan/goodput.h"

namespace copus {
namespace {

double speed_of(const PlanReport& report, const Candidate& candidate) {
  return candidate.tokens_per_second(report.config.model);
}

double worth_of(const PlanReport& report, const Candidate& candidate, Objective objective) {
  return goodput(objective, speed_of(report, candidate), static_cast<double>(candidate.batch),
                 report.phi);
}

double mfu_of(const PlanReport& report, const Candidate& candidate) {
  double const peak = report.cluster.hardware.matrix(report.config.train.precision).peak_flops;
  return mfu_of(report.config.model, speed_of(report, candidate), candidate.shape.layout.world(),
                peak);
}

// A setting that changes nothing here: the same row stands there without it.
bool says_nothing_new(const Layout& layout) {
  return (layout.pp == 1 && layout.virtual_stages > 1) || (layout.dp == 1 && layout.zero > 0) ||
         (layout.tp == 1 && layout.sequence_parallel);
}

nlohmann::json candidate_json(const PlanReport& report, const Candidate& candidate) {
  const Layout& layout = candidate.shape.layout;
  nlohmann::json memory = {{"total", candidate.memory.plan.total()}};
  for (const MemorySegment& segment : candidate.memory.plan.segments) {
    memory[segment.name] = segment.bytes;
  }
  nlohmann::json worth;
  for (Objective objective : {Objective::plain, Objective::sqrt_lr, Objective::normalized}) {
    worth[std::string(name_of(objective))] = worth_of(report, candidate, objective);
  }
  return {{"dp", layout.dp},
          {"tp", layout.tp},
          {"pp", layout.pp},
          {"virtual_stages", layout.virtual_stages},
          {"micro_batch", candidate.shape.micro},
          {"batch", candidate.batch},
          {"recompute", name_of(candidate.shape.recompute)},
          {"zero", layout.zero},
          {"sequence_parallel", layout.sequence_parallel},
          {"feasible", candidate.feasible},
          {"reason", candidate.reason},
          {"step_seconds", candidate.step_seconds()},
          {"tokens_per_second", speed_of(report, candidate)},
          {"mfu", mfu_of(report, candidate)},
          {"memory_bytes", std::move(memory)},
          {"goodput", std::move(worth)}};
}

void print_row(const PlanReport& report, const Candidate& candidate, std::size_t place) {
  const Layout& layout = candidate.shape.layout;
  double const bytes = static_cast<double>(candidate.memory.plan.total());
  fmt::print(
      "{:>4}{:>6}{:>4}{:>4}{:>4}{:>6}{:>4}{:>7}{:>7}  {:<10}{:>10.4g}{:>10}{:>7.1f}{:>11}{:>11}\n",
      place, layout.dp, layout.tp, layout.pp, layout.virtual_stages, layout.zero,
      layout.sequence_parallel ? "on" : "-", candidate.shape.micro, candidate.batch,
      name_of(candidate.shape.recompute), candidate.step_seconds(),
      human_count(speed_of(report, candidate)), 100.0 * mfu_of(report, candidate),
      human_bytes(bytes), human_count(worth_of(report, candidate, report.config.adapt.objective)));
}

void print_best(const PlanReport& report, const Candidate& best) {
  const StepCost& cost = best.cost;
  double const m = static_cast<double>(best.micro_batches()), step = best.step_seconds();
  auto const share = [step](double seconds) { return 100.0 * seconds / step; };
  fmt::print(
      "best: {}: {} x {:.4g} s a micro-batch, and {:.4g} s around them\n"
      "  compute {:.1f} %, tensor collectives {:.1f} %, messages {:.1f} %, bubble {:.1f} %, "
      "gradient reduction {:.1f} %, weight gather {:.1f} %, optimizer {:.1f} %\n",
      to_string(best.shape.layout), best.micro_batches(), cost.beta, cost.alpha,
      share(m * cost.compute), share(m * cost.tensor), share(m * cost.messages), share(cost.bubble),
      share(cost.reduce), share(cost.gather), share(cost.optimizer));
  fmt::print("  memory of stage {}:", best.memory.pp_rank);
  for (const MemorySegment& segment : best.memory.plan.segments) {
    if (segment.bytes == 0) continue;
    fmt::print(" {} {},", segment.name, human_bytes(static_cast<double>(segment.bytes)));
  }
  fmt::print(" of {} usable\n",
             human_bytes(static_cast<double>(report.cluster.hardware.usable_bytes())));
}

// tp that divides the heads and is still no candidate.
void print_illegal_tp(const PlanReport& report) {
  const ModelConfig& model = report.config.model;
  if (report.config.parallel.tp) return;
  for (int tp = 2; tp <= std::min<std::int64_t>(report.world, model.heads); ++tp) {
    if (model.heads % tp != 0) continue;
    Layout layout;
    layout.tp = tp;
    std::vector<std::string> const reasons = illegal_reasons(model, layout, 0, 0);
    if (!reasons.empty()) fmt::print("  not listed: {}\n", reasons.front());
  }
}

// One line a kind of refusal: how many, and the one that misses by least.
void print_refused(const PlanReport& report) {
  struct Group {
    std::size_t count = 0;
    const Candidate* nearest = nullptr;
  };
  std::map<std::string, Group> groups;
  for (const Candidate& candidate : report.candidates) {
    if (candidate.feasible || says_nothing_new(candidate.shape.layout)) continue;
    bool const by_memory = candidate.reason.starts_with("stage ");
    Group& group = groups[by_memory ? "too little memory" : candidate.reason];
    ++group.count;
    bool const less = group.nearest == nullptr ||
                      candidate.memory.plan.total() < group.nearest->memory.plan.total();
    if (less) group.nearest = &candidate;
  }
  if (!groups.empty()) fmt::print("refused:\n");
  for (const auto& [kind, group] : groups) {
    const Candidate& c = *group.nearest;
    fmt::print("  {:>6}  {}\n", group.count, kind);
    if (kind != c.reason) {
      fmt::print("          nearest: {}, micro-batch {}, batch {}, recompute {}: {}\n",
                 to_string(c.shape.layout), c.shape.micro, c.batch, name_of(c.shape.recompute),
                 c.reason);
    }
  }
  print_illegal_tp(report);
}

void print_title(const PlanReport& report) {
  const Cluster& cluster = report.cluster;
  fmt::print("{} rank{} in nodes of {}, {} ({})\n", report.world, report.world == 1 ? "" : "s",
             cluster.gpus_per_node, printable_line(cluster.hardware.name),
             printable_line(cluster.hardware.source));
  std::string const phi =
      std::isinf(report.phi)
          ? "critical batch not given: every batch counts as far below it (--critical-batch)"
          : fmt::format("critical batch {:.6g} sequences", report.phi);
  fmt::print("{} tokens a sequence, {}; goodput {}; {}\n", report.config.model.seq_len,
             name_of(report.config.train.precision), name_of(report.config.adapt.objective), phi);
}

}  // namespace

void sort_candidates(PlanReport& report) {
  auto const key = [&](const Candidate& c) {
    double const worth = worth_of(report, c, report.config.adapt.objective);
    // Among equals the plainest layout, then the least memory.
    return std::tuple{!c.feasible, -worth, says_nothing_new(c.shape.layout), c.memory.plan.total()};
  };
  std::stable_sort(report.candidates.begin(), report.candidates.end(),
                   [&](const Candidate& a, const Candidate& b) { return key(a) < key(b); });
}

nlohmann::json as_json(const PlanReport& report) {
  nlohmann::json list = nlohmann::json::array();
  for (const Candidate& candidate : report.candidates) {
    list.push_back(candidate_json(report, candidate));
  }
  return {{"model", to_json(report.config).at("model")},
          {"world", report.world},
          {"candidates", std::move(list)}};
}

void print_table(const PlanReport& report, std::size_t rows) {
  print_title(report);
  fmt::print("{:>4}{:>6}{:>4}{:>4}{:>4}{:>6}{:>4}{:>7}{:>7}  {:<10}{:>10}{:>10}{:>7}{:>11}{:>11}\n",
             "", "dp", "tp", "pp", "v", "zero", "sp", "micro", "batch", "recompute", "step s",
             "tokens/s", "MFU %", "memory", "goodput");
  std::size_t feasible = 0;
  const Candidate* best = nullptr;
  for (const Candidate& candidate : report.candidates) {
    if (!candidate.feasible || says_nothing_new(candidate.shape.layout)) continue;
    if (best == nullptr) best = &candidate;
    if (++feasible <= rows) print_row(report, candidate, feasible);
  }
  if (feasible > rows) fmt::print("  … and {} more that fit (--all, --top N)\n", feasible - rows);
  if (best != nullptr) print_best(report, *best);
  if (best == nullptr) fmt::print("nothing fits\n");
  print_refused(report);
}

}  // namespace copus
