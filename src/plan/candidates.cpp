#include "copus/plan/candidates.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "copus/core/units.h"

namespace copus {
namespace {

std::vector<std::int64_t> micros_of(const Config& config, std::int64_t share) {
  if (config.batch.micro) return {*config.batch.micro};
  std::vector<std::int64_t> found;
  for (std::int64_t micro = 1; micro <= share; ++micro) {
    if (share % micro == 0) found.push_back(micro);
  }
  return found;
}

std::vector<Recompute> recomputes_of(const ParallelConfig& asked) {
  if (asked.recompute) return {*asked.recompute};
  return {Recompute::none, Recompute::selective, Recompute::full};
}

// "stage 3 needs 91.2 GiB, 13.2 GiB more than the 78.0 GiB that a rank has (80.0 GiB less 2.00 GiB
// for the runtime); the largest part is saved with 60.1 GiB"
std::string too_large(const StageMemory& memory, const Hardware& hardware) {
  auto const largest =
      std::max_element(memory.plan.segments.begin(), memory.plan.segments.end(),
                       [](const auto& a, const auto& b) { return a.bytes < b.bytes; });
  auto const text = [](std::int64_t bytes) { return human_bytes(static_cast<double>(bytes)); };
  std::string const less =
      hardware.reserved_bytes > 0
          ? fmt::format(" ({} less {} for the runtime)", text(hardware.memory_bytes),
                        text(hardware.reserved_bytes))
          : "";
  std::int64_t const total = memory.plan.total(), usable = hardware.usable_bytes();
  return fmt::format(
      "stage {} needs {}, {} more than the {} that a rank has{}; the largest part is {} with {}",
      memory.pp_rank, text(total), text(total - usable), text(usable), less, largest->name,
      text(largest->bytes));
}

// The batches of a schedule come whatever the planner chooses: a layout must take all of them.
// Empty: it does.
std::string misses_schedule(const Config& config, const Layout& layout) {
  for (const BatchStep& step : config.batch.schedule) {
    std::vector<std::string> const reasons =
        illegal_reasons(config.model, layout, step.sequences, config.batch.micro.value_or(0));
    if (!reasons.empty()) {
      return fmt::format("batch.schedule comes to {}: {}", step.sequences, reasons.front());
    }
  }
  return "";
}

class Pricing {
 public:
  Pricing(const Config& config, const Cluster& cluster, CandidateUse use)
      : config_(config), cluster_(cluster), use_(use) {}

  void price(const Layout& layout, std::int64_t batch, std::vector<Candidate>& out) {
    std::string const schedule = misses_schedule(config_, layout);
    if (batch % layout.dp != 0) return;
    for (std::int64_t micro : micros_of(config_, batch / layout.dp)) {
      if (!illegal_reasons(config_.model, layout, batch, micro).empty()) continue;
      for (Recompute recompute : recomputes_of(config_.parallel)) {
        out.push_back(candidate({layout, micro, recompute}, batch, schedule));
      }
    }
  }

 private:
  Candidate candidate(const StepShape& shape, std::int64_t batch, const std::string& schedule) {
    const std::vector<StageElements>& sizes = sizes_of(shape.layout);
    Candidate out;
    out.shape = shape;
    out.batch = batch;
    out.cost = step_cost(config_.model, shape, out.micro_batches(), config_.train.precision,
                         cluster_, sizes);
    std::int64_t const live = use_ == CandidateUse::run
                                  ? most_micro_batches(config_, shape.layout, shape.micro)
                                  : out.micro_batches();
    out.memory = worst_stage(
        config_.model, shape.layout, shape.micro, live, config_.train.precision, shape.recompute,
        sizes, config_.adapt.mode != AdaptMode::off, cluster_.hardware.attention_library());
    out.reason = schedule;
    if (out.reason.empty() && out.memory.plan.total() > cluster_.hardware.usable_bytes()) {
      out.reason = too_large(out.memory, cluster_.hardware);
    }
    out.feasible = out.reason.empty();
    return out;
  }

  // One value for all micro-batches, ZeRO stages and recompute modes.
  const std::vector<StageElements>& sizes_of(const Layout& layout) {
    std::tuple const key{layout.dp, layout.tp, layout.pp, layout.virtual_stages,
                         layout.sequence_parallel};
    auto found = sizes_.find(key);
    if (found == sizes_.end()) {
      found = sizes_.emplace(key, stage_sizes(config_.model, layout)).first;
    }
    return found->second;
  }

  const Config& config_;
  const Cluster& cluster_;
  CandidateUse use_;
  std::map<std::tuple<int, int, int, int, bool>, std::vector<StageElements>> sizes_;
};

}  // namespace

std::vector<Candidate> candidates_of(const Config& config, const Cluster& cluster, int world,
                                     CandidateUse use) {
  std::vector<Candidate> out;
  Pricing pricing(config, cluster, use);
  std::vector<std::int64_t> const batches = batches_of(config, world);
  for (const Layout& layout : layouts_of(config, world, use).layouts) {
    for (std::int64_t batch : batches) pricing.price(layout, batch, out);
  }
  return out;
}

}  // namespace copus
