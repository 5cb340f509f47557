#include "copus/train/resolve.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "copus/backend/backend.h"
#include "copus/backend/machine.h"
#include "copus/core/error.h"
#include "copus/core/units.h"

namespace copus {
namespace {

std::vector<std::int64_t> batches_of(const Config& config) {
  std::vector<std::int64_t> batches{config.batch.sequences};
  for (const BatchStep& step : config.batch.schedule) batches.push_back(step.sequences);
  std::sort(batches.begin(), batches.end());
  batches.erase(std::unique(batches.begin(), batches.end()), batches.end());
  return batches;
}

// A rank reads all its samples of a step before the first micro-batch: an id and a target a token,
// and some bookkeeping a micro-batch. What this machine's memory cannot hold would be killed long
// after the start.
std::string step_problem(const Config& config, const Layout& layout, std::int64_t micro,
                         std::int64_t batch) {
  constexpr double kTokenBytes = 2 * sizeof(std::int32_t), kMicroBytes = 256;
  double const bytes_a_sequence = kTokenBytes * static_cast<double>(config.model.seq_len) +
                                  kMicroBytes / static_cast<double>(micro);
  double const bytes = bytes_a_sequence * static_cast<double>(batch / layout.dp),
               room = static_cast<double>(available_memory_bytes());
  if (bytes <= room) return "";
  std::int64_t const unit = micro * layout.dp;
  auto const most = static_cast<std::int64_t>(room / bytes_a_sequence) * layout.dp / unit * unit;
  return fmt::format(
      "{}: the token ids of {} sequences of {} tokens take {} on a rank, and this machine has {} "
      "to give; it takes at most {}",
      config.batch.schedule.empty() ? "batch.sequences" : "batch.schedule", batch,
      config.model.seq_len, human_bytes(bytes), human_bytes(room), most);
}

}  // namespace

std::string precision_problem(const Config& config, const Gpu* gpu) {
  if (config.train.precision == Precision::fp32) return "";
  constexpr int kFirstWithBf16 = 80;
  if (gpu != nullptr && gpu->capability >= kFirstWithBf16) return "";
  if (gpu != nullptr) {
    return fmt::format(
        "train.precision: \"bf16\": {} (sm_{}) has no bf16 products, which came with sm_{}; it "
        "takes "
        "\"fp32\", or device \"cpu\"",
        gpu->name, gpu->capability, kFirstWithBf16);
  }
  std::string const slow = cpu_bf16_problem();
  if (slow.empty() || config.train.emulate_bf16) return "";
  return fmt::format(
      "train.precision: \"bf16\": {}; it takes \"fp32\", or bf16 with train.emulate_bf16 true, "
      "which has bf16's numbers and less than fp32's speed",
      slow);
}

std::int64_t choose_micro(const Config& config, const Layout& layout) {
  if (config.batch.micro) return *config.batch.micro;
  constexpr std::int64_t kTokens = 4096;
  std::int64_t common = 0;
  for (std::int64_t batch : batches_of(config)) common = std::gcd(common, batch);
  if (common % layout.dp != 0) return 1;  // no micro-batch fits; resolve_layout says so
  common /= layout.dp;
  std::int64_t micro = 1;
  // Interleaved stages take micro-batches in rounds of pp.
  std::int64_t const round = layout.virtual_stages > 1 ? layout.pp : 1;
  for (std::int64_t m = 1; m <= common && m * config.model.seq_len <= kTokens; ++m) {
    if (common % (m * round) == 0) micro = m;
  }
  return micro;
}

Layout resolve_layout(const Config& config, int world) {
  const ParallelConfig& asked = config.parallel;
  Layout layout;
  layout.tp = asked.tp.value_or(1);
  layout.pp = asked.pp.value_or(1);
  layout.dp = asked.dp.value_or(std::max(1, world / (layout.tp * layout.pp)));
  layout.virtual_stages = layout.pp == 1 ? 1 : asked.virtual_stages.value_or(1);
  layout.zero = asked.zero.value_or(0);
  layout.sequence_parallel = layout.tp > 1 && asked.sequence_parallel.value_or(false);
  std::vector<std::string> problems;
  if (layout.world() > world) {
    problems.push_back(
        fmt::format("parallel: dp {} x tp {} x pp {} is {} ranks, the world has {}; start {} ranks "
                    "(mpirun -n {} copus ..., with --oversubscribe where the processors are fewer, "
                    "or copus ... --ranks {}), or ask for less",
                    layout.dp, layout.tp, layout.pp, layout.world(), world, layout.world(),
                    layout.world(), layout.world()));
  }
  std::int64_t const micro = choose_micro(config, layout);
  for (std::int64_t batch : batches_of(config)) {
    std::string too_large = step_problem(config, layout, micro, batch);
    if (!too_large.empty()) {
      problems.push_back(std::move(too_large));
      continue;
    }
    for (std::string& reason : illegal_reasons(config.model, layout, batch, micro)) {
      if (std::find(problems.begin(), problems.end(), reason) == problems.end())
        problems.push_back(std::move(reason));
    }
  }
  if (!problems.empty()) throw ConfigError(problems);
  return layout;
}

}  // namespace copus
