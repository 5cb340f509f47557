// How a run begins: weights, its directory, and the first words of its record.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "copus/comm/broadcast.h"
#include "copus/comm/host_names.h"
#include "copus/comm/vote.h"
#include "copus/core/config_io.h"
#include "copus/core/error.h"
#include "copus/parallel/flops.h"
#include "copus/plan/planner_memory.h"
#include "copus/state/checkpoint.h"
#include "copus/train/rank_peak.h"
#include "train/run.h"
#include "train/run_checkpoint.h"
#include "train/stopwatch.h"

namespace copus {

void Run::load() {
  PhaseMark const phase(trainer_.activity(), "reading weights");
  if (!inputs_.checkpoint.directory.empty()) {
    {
      Stopwatch const watch(read_seconds_);
      load_run(inputs_.checkpoint.directory, config_.model, trainer_);
    }
    log_.info(
        fmt::format("resumed from {}: step {}, {} tokens; checked in {:.2f} s, read in {:.2f}",
                    inputs_.checkpoint.directory, trainer_.state().counters.step,
                    trainer_.state().counters.tokens, inputs_.check_seconds, read_seconds_));
    saved_at_ = trainer_.state().counters.step;
  } else if (inputs_.weights) {
    std::vector<std::string> mistakes;
    try {
      trainer_.read_weights(*inputs_.weights);
    } catch (const ConfigError& e) {
      mistakes = e.problems();
    }
    if (!agreed(world_, mistakes)) throw ConfigError(std::vector<std::string>{});
  } else {
    trainer_.draw_weights(config_.train.seed);
  }
}

void Run::show_start() {
  for (const std::string& line :
       run_table(config_, plan_.layout, plan_.micro, machine_.device_words(),
                 machine_.peak_of(plan_.layout),
                 listed_peak_flops(machine_.device, config_.train.precision).has_value())) {
    log_.info(line);
  }
  for (const std::string& line :
       data_table(inputs_.train->summary(), inputs_.val->summary(), config_.model.seq_len)) {
    log_.info(line);
  }
  for (const std::string& line : memory_table(trainer_.memory())) log_.info(line);
}

void Run::write_run_event() {
  std::string const hash = fmt::format("{:016x}", trainer_.weight_hash());
  std::vector<std::string> const hosts = host_names(world_);
  log_.info(fmt::format("weight hash {}", hash));
  if (!leads()) return;
  nlohmann::json fields = {{"version", options_.version},
                           {"backend", machine_.backend.name()},
                           {"device", machine_.device_words()},
                           {"transport", machine_.ranks->transport()},
                           {"ranks", plan_.layout.world()},
                           {"hosts", hosts},
                           {"weight_hash", hash},
                           {"parameters", parameter_count(config_.model)},
                           {"peak_flops", machine_.peak_of(plan_.layout)},
                           {"planned_memory_bytes", trainer_.memory().total()},
                           {"resumed", !inputs_.checkpoint.directory.empty()}};
  if (!inputs_.checkpoint.directory.empty()) {
    fields["resumed_from"] = {{"path", inputs_.checkpoint.directory},
                              {"check_seconds", inputs_.check_seconds},
                              {"read_seconds", read_seconds_}};
  }
  metrics_->event("run", trainer_.state().counters, fields);
}

// On rank 0 the folder, held against other processes, with a record to go on with.
void Run::take_directory() {
  std::string taken;
  if (leads() && !inputs_.lock) {
    make_run_directory(directory_);
    inputs_.lock = std::make_unique<RunLock>();
    taken = inputs_.lock->take(directory_, options_.resume);
  }
  // world: what rank 0 found ends all.
  taken = broadcast_text(world_, taken, 0);
  if (!taken.empty()) throw ConfigError(leads() ? std::vector{taken} : std::vector<std::string>{});
  if (!leads()) return;
  log_.attach_file(directory_.log());
  if (!inputs_.lock->warning().empty()) log_.warn(inputs_.lock->warning());
  if (inputs_.checkpoint.directory.empty()) start_record(directory_, log_);
}

// What an earlier end left undone among the checkpoints, and what the configuration leaves to do.
void Run::settle() {
  for (const std::string& line : settle_checkpoints(inputs_.checkpoint, config_.checkpoint.keep))
    log_.warn(line);
  std::int64_t const tokens = trainer_.state().counters.tokens;
  if (tokens > config_.train.tokens)
    log_.warn(
        fmt::format("train.tokens {} lies behind the {} tokens of the checkpoint: nothing is "
                    "left to train",
                    config_.train.tokens, tokens));
}

// What rank 0 writes of the run from here on.
void Run::open_record() {
  if (options_.resume) {
    for (const std::string& line : config_differences(directory_.config(), config_))
      log_.info("config differs from the stored one: " + line);
  }
  write_config(directory_.config(), config_);
  metrics_ =
      std::make_unique<MetricsFile>(directory_.metrics(), trainer_.state().counters.step, log_);
}

void Run::start() {
  // Weights that are given are read before anything is written: they may be refused.
  bool const goes_on = !inputs_.checkpoint.directory.empty();
  if (!goes_on) load();
  take_directory();
  if (goes_on) {
    load();
    // Only now: nothing of the folder has changed if the state could not be read.
    if (leads()) settle();
  }
  show_start();
  progress_.emplace(config_, flops_per_token(config_.model), machine_.peak_of(plan_.layout),
                    trainer_.state().counters.tokens);
  if (leads()) open_record();
  write_run_event();
  if (cluster_) start_planner();
}

void Run::start_planner() {
  const Cluster& machine = *cluster_;
  const PlannerMemory& memory = trainer_.state().planner;
  if (leads()) {
    // With the configuration and the metrics this is all that plan/replay.h needs.
    std::int64_t const batch = batch_of(plan_, config_.batch, trainer_.state().counters.tokens);
    metrics_->event("planner", trainer_.state().counters,
                    {{"hardware", nlohmann::json::parse(hardware_json(machine.hardware))},
                     {"nodes", machine.nodes},
                     {"gpus_per_node", machine.gpus_per_node},
                     {"world", world_.size()},
                     {"plan", plan_json(config_, plan_, batch)},
                     {"memory", nlohmann::json::parse(memory_text(memory))}});
  }
  adapter_.emplace(config_, machine, world_, plan_, memory);
  if (leads() && !adapter_->has_choice()) {
    log_.warn(
        fmt::format("adapt.mode {} has nothing to choose from: on {} rank{} only the present "
                    "batch, micro-batch "
                    "and layout are possible; give batch.min and batch.max, or leave batch.micro "
                    "and parallel's "
                    "keys \"auto\"",
                    name_of(config_.adapt.mode), world_.size(), world_.size() == 1 ? "" : "s"));
  }
}

}  // namespace copus
