#include "copus/train/resolve.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "copus/core/error.h"

namespace copus {
namespace {

std::vector<std::int64_t> batches_of(const Config& config) {
  std::vector<std::int64_t> batches{config.batch.sequences};
  for (const BatchStep& step : config.batch.schedule) batches.push_back(step.sequences);
  std::sort(batches.begin(), batches.end());
  batches.erase(std::unique(batches.begin(), batches.end()), batches.end());
  return batches;
}

}  // namespace

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
                    "(mpirun -n {} copus train ..., or copus "
                    "train ... --ranks {}), or ask for less",
                    layout.dp, layout.tp, layout.pp, layout.world(), world, layout.world(),
                    layout.world(), layout.world()));
  }
  std::int64_t const micro = choose_micro(config, layout);
  for (std::int64_t batch : batches_of(config)) {
    for (std::string& reason : illegal_reasons(config.model, layout, batch, micro)) {
      if (std::find(problems.begin(), problems.end(), reason) == problems.end())
        problems.push_back(std::move(reason));
    }
  }
  if (!problems.empty()) throw ConfigError(problems);
  return layout;
}

}  // namespace copus
