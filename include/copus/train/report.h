// What a run tells the person in front of it: the start-up tables and the step line.
#pragma once
#include <string>
#include <vector>

#include "copus/core/config.h"
#include "copus/core/log.h"
#include "copus/data/loader.h"
#include "copus/parallel/layout.h"
#include "copus/parallel/memory.h"
#include "copus/train/trainer.h"

namespace copus {

// The resolved run as a table: model, parameters, batch, schedule, device. `listed`: the peak is
// the vendor's, not measured.
std::vector<std::string> run_table(const Config& config, const Layout& layout, std::int64_t micro,
                                   const std::string& device, double peak_flops, bool listed);
std::vector<std::string> data_table(const std::vector<SourceSummary>& train,
                                    const std::vector<SourceSummary>& val, std::int64_t seq_len);
// The plan's segments; `measured` is the process's peak after the first step, 0 before.
std::vector<std::string> memory_table(const MemoryPlan& plan);

// The console's view of progress: tokens/s over recent steps, time left.
class Progress {
 public:
  Progress(const Config& config, double flops_per_token, double peak_flops,
           std::int64_t first_tokens);
  void add(const StepRecord& record);
  double tokens_per_second() const { return recent_rate_; }  // smoothed over recent steps
  double mfu_of(double tokens_per_second) const;
  void use_peak(double peak_flops) { peak_flops_ = peak_flops; }
  // A branched check took so long; those to come are expected to.
  void add_check(double seconds) { check_seconds_ = seconds; }
  std::int64_t steps() const { return steps_; }  // added so far
  std::string line(const StepRecord& record) const;

 private:
  double seconds_left(std::int64_t tokens) const;
  Config config_;
  double flops_per_token_, peak_flops_;
  std::int64_t last_tokens_;
  double recent_rate_ = 0.0, recent_data_share_ = 0.0;
  double check_seconds_ = 0.0;  // of the last one
  std::int64_t steps_ = 0;
};

}  // namespace copus
