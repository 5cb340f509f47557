// A branched check inside a run: whether there can be one, what it finds, and what is said of it.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "copus/backend/machine.h"
#include "copus/core/units.h"
#include "copus/train/branched_check.h"
#include "train/run.h"

namespace copus {
namespace {

nlohmann::json as_json(const Check& check) {
  nlohmann::json branches = nlohmann::json::array();
  for (const Branch& b : check.branches) {
    branches.push_back({{"batch", b.batch},
                        {"lr", b.lr},
                        {"loss", b.loss},
                        {"steps", b.steps},
                        {"progress", b.progress},
                        {"error", b.error}});
  }
  return branches;
}

}  // namespace

// The same on every rank.
std::string Run::check_problem() {
  if (!measures_noise_scale(config_))
    return "adapt.mode is \"off\", so there is no noise scale to check; \"log\" measures one";
  std::int64_t const warmup = config_.schedule.warmup_tokens;
  if (trainer_.state().counters.tokens < warmup) {
    return fmt::format("the learning rate is warming up, until {} tokens (schedule.warmup_tokens)",
                       warmup);
  }
  if (inputs_.val->tokens() == 0) return "there is no data.val to measure losses on";
  NoiseScale const noise = noise_of(noise_);
  return noise.resolved ? "" : "the noise scale is unresolved: " + noise.why;
}

void Run::check_batches() {
  PhaseMark const phase(trainer_.activity(), "trying larger batches");
  const Counters& counters = trainer_.state().counters;
  std::int64_t const limit = inputs_.train->limit();
  CheckRequest request = check_request(config_, plan_.layout, plan_.micro,
                                       batch_of(plan_, config_.batch, counters.tokens),
                                       limit < 0 ? -1 : limit - counters.samples);
  request.free_bytes = available_memory_bytes() / machine_.device.ranks_here;
  request.stop = [this] { return asked_to_stop(); };
  if (leads()) {
    request.show = [this](const std::string& words) { log_.live("branched check: " + words); };
  }
  CheckRun run;
  run.refused = check_problem();
  if (run.refused.empty()) run.refused = request.refused;
  if (run.refused.empty())
    run = branched_check(trainer_, training_samples(), *inputs_.val, request);
  // Whoever asked meanwhile, a launcher's other ranks among them, has this one.
  if (options_.check_asked) options_.check_asked();
  if (trainer_.active()) watch_.look_away(trainer_.mesh());
  stopping_ = run.stopped;
  if (!run.refused.empty()) {
    log_.info("no branched check: " + run.refused);
  } else if (run.stopped) {
    log_.info("branched check left unfinished: the run was asked to stop");
  } else {
    report_check(run, request.samples * config_.model.seq_len);
  }
}

void Run::report_check(const CheckRun& run, std::int64_t branch_tokens) {
  check_seconds_ += run.seconds;
  progress_->add_check(run.seconds);
  if (!leads()) return;
  CheckFinding const found =
      adapter_ ? adapter_->learn(run.check, noise_)
               : learn(trainer_.state().planner, run.check, rules_of(config_), noise_of(noise_));
  nlohmann::json const critical =
      found.critical_batch ? nlohmann::json(*found.critical_batch) : nlohmann::json(nullptr);
  metrics_->event("check", trainer_.state().counters,
                  {{"seconds", run.seconds},
                   {"branch_tokens", branch_tokens},
                   {"from_loss", run.check.from_loss},
                   {"branches", as_json(run.check)},
                   {"critical_batch", critical},
                   {"at_least", found.at_least},
                   {"calibration", config_.adapt.calibration * found.correction},
                   {"reason", found.reason}});
  log_.info(fmt::format("branched check: {}; {} over {} x {} tokens, which train nothing",
                        found.reason, human_duration(run.seconds), run.check.branches.size(),
                        human_count(static_cast<double>(branch_tokens))));
}

}  // namespace copus
