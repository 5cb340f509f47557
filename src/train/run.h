// One rank's part of a run in progress. Only rank 0 writes and reports; everybody computes, and
// decides alike from equal numbers.
#pragma once
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "copus/core/config.h"
#include "copus/core/log.h"
#include "copus/train/branched_check.h"
#include "copus/train/loop.h"
#include "copus/train/metrics.h"
#include "copus/train/report.h"
#include "copus/train/run_plan.h"
#include "copus/train/trainer.h"
#include "train/adapter.h"
#include "train/run_checkpoint.h"
#include "train/run_directory.h"
#include "train/run_inputs.h"
#include "train/run_machine.h"
#include "train/stall_watch.h"
#include "train/switch_watch.h"
#include "train/trials.h"

namespace copus {

// A plan as events of metrics.jsonl show it.
nlohmann::json plan_json(const Config& config, const RunPlan& plan, std::int64_t batch);

// What a run begins with, and what is known already to change it.
struct RunStart {
  RunPlan plan;
  Script script;
  std::optional<Cluster> cluster = {};  // where the configuration asks for a planner
  std::vector<RunPlan> trials = {};     // the first one is the plan
};

class Run {
 public:
  // Everything checked; nothing written yet.
  Run(Config config, const TrainOptions& options, RunStart start, Communicator& world,
      RunMachine machine, RunInputs inputs, Log& log);
  RunEnd go();

 private:
  bool leads() const { return world_.rank() == 0; }
  bool asked_to_stop() const { return options_.stop_reason && !options_.stop_reason().empty(); }
  bool asked_to_check() const { return options_.check_asked && options_.check_asked(); }
  SampleSource training_samples() const;
  void start();
  void load();
  void take_directory();
  void settle();
  void open_record();
  void start_planner();
  void show_start();
  void write_run_event();
  void report(const StepRecord& record);
  void report_noise_scale(const GnsReading& gns);
  void warn_of_epochs(std::int64_t before);
  void evaluate();
  enum class SaveMode { now, as_configured };
  void save(SaveMode mode);
  void finish_save();
  void between_steps(const StepRecord& record);
  void follow_script();
  void settle_switch();
  void consult_planner();
  void follow_trials();
  nlohmann::json unpriced_decision(const RunPlan& to);
  std::string check_problem();
  void check_batches();
  void report_check(const CheckRun& run, std::int64_t branch_tokens);
  void write_decision(const Decision& decision, bool acts);
  void change_to(const RunPlan& plan, const std::string& reason);
  std::string end_reason();  // empty: go on
  std::string stop_words() const;

  Config config_;
  TrainOptions options_;
  RunDirectory directory_;
  RunPlan plan_;
  Script script_;
  std::optional<Cluster> cluster_;
  Communicator& world_;
  RunMachine machine_;
  RunInputs inputs_;
  Log& log_;
  Trainer trainer_;
  CheckpointWriter writer_;
  std::unique_ptr<MetricsFile> metrics_;  // rank 0
  std::optional<Progress> progress_;
  SwitchWatch watch_;
  std::optional<Adapter> adapter_;   // where the configuration asks for a planner
  std::optional<Trials> trials_;     // while they last
  std::optional<GnsReading> noise_;  // the latest
  StallWatch stall_watch_;
  bool stopping_ = false;                // some rank was asked to end
  GnsState gns_state_ = GnsState::cold;  // as last said
  std::int64_t gns_said_at_ = 0;
  bool double_count_said_ = false;
  double check_seconds_ = 0.0;  // of branched checks, since the last decision
  double read_seconds_ = 0.0;   // that reading the checkpoint took
  std::int64_t saved_at_ = -1, saving_step_ = -1, evaluated_at_ = -1;  // steps
  std::string save_failed_;                                            // why the last save did
};

}  // namespace copus
