// How a run changes its plan between two steps, and what it says of it.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "copus/backend/machine.h"
#include "copus/core/units.h"
#include "train/run.h"

namespace copus {
namespace {

nlohmann::json as_json(const Layout& layout, std::int64_t micro, std::int64_t batch) {
  return {{"dp", layout.dp},     {"tp", layout.tp},
          {"pp", layout.pp},     {"virtual_stages", layout.virtual_stages},
          {"zero", layout.zero}, {"micro_batch", micro},
          {"batch", batch}};
}

nlohmann::json seconds_of(const SwitchRecord& record) {
  nlohmann::json seconds{{"total", record.total_seconds}};
  for (int i = 0; i < kSwitchPhases; ++i)
    seconds[name_of(static_cast<SwitchPhase>(i))] = record.seconds[i];
  return seconds;
}

std::string phases_of(const SwitchRecord& record) {
  std::string text;
  for (int i = 0; i < kSwitchPhases; ++i) {
    text += fmt::format("{}{} {:.3f}", i > 0 ? ", " : "", name_of(static_cast<SwitchPhase>(i)),
                        record.seconds[i]);
  }
  return text;
}

std::string words(const Layout& layout, std::int64_t micro, std::int64_t batch) {
  return fmt::format("{}, batch {} in micro-batches of {}", to_string(layout), batch, micro);
}

}  // namespace

void Run::follow_script() {
  const Counters& counters = trainer_.state().counters;
  if (const RunPlan* const plan = script_.due(counters); plan != nullptr && *plan != plan_)
    change_to(*plan, "adapt.script");
}

void Run::change_to(const RunPlan& plan, const std::string& reason) {
  const Counters& counters = trainer_.state().counters;
  std::int64_t const batch_before = batch_of(plan_, config_.batch, counters.tokens);
  std::int64_t const batch_after = batch_of(plan, config_.batch, counters.tokens);
  nlohmann::json const from = as_json(plan_.layout, plan_.micro, batch_before);
  nlohmann::json const to = as_json(plan.layout, plan.micro, batch_after);
  if (leads()) {
    log_.info(fmt::format("{}: from {} to {}", reason,
                          words(plan_.layout, plan_.micro, batch_before),
                          words(plan.layout, plan.micro, batch_after)));
    metrics_->event("decision", counters,
                    {{"from", from},
                     {"to", to},
                     {"reason", reason},
                     {"predicted", nullptr},
                     {"current", nullptr},
                     {"probability", nullptr},
                     {"cost_seconds", nullptr}});
  }
  if (plan.layout == plan_.layout && plan.micro == plan_.micro) {
    plan_ = plan;
    return;
  }
  SwitchRequest request;
  request.layout = plan.layout;
  request.micro = plan.micro;
  request.free_bytes = available_memory_bytes() / options_.ranks_here;
  SwitchRecord const record = trainer_.switch_to(request);
  if (!record.refused.empty()) {
    log_.warn(fmt::format("still in {}: {}", to_string(plan_.layout), record.refused));
    if (leads()) {
      metrics_->event("reshard", counters,
                      {{"from", from}, {"to", to}, {"refused", record.refused}});
    }
    return;
  }
  plan_ = plan;
  watch_.switched();
  progress_->use_peak(peak_of(plan_.layout));
  if (!leads()) return;
  log_.info(fmt::format("switched in {:.3f} s ({}): {} moved, {} copied, peak of this rank {}",
                        record.total_seconds, phases_of(record),
                        human_bytes(static_cast<double>(record.bytes_moved)),
                        human_bytes(static_cast<double>(record.bytes_local)),
                        human_bytes(static_cast<double>(record.peak_bytes))));
  metrics_->event("reshard", counters,
                  {{"from", from},
                   {"to", to},
                   {"seconds", seconds_of(record)},
                   {"bytes_moved", record.bytes_moved},
                   {"bytes_local", record.bytes_local},
                   {"peak_bytes", record.peak_bytes},
                   {"in_place", record.in_place},
                   {"state_hash", fmt::format("{:016x}", record.state_hash)}});
}

}  // namespace copus
