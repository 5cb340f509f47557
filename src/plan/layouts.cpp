#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "copus/core/error.h"
#include "copus/plan/candidates.h"

namespace copus {
namespace {

// The value that was given, or all that "auto" stands for.
template <class T>
std::vector<T> choices(const std::optional<T>& given, std::vector<T> all) {
  return given ? std::vector<T>{*given} : std::move(all);
}

std::vector<int> divisors(std::int64_t value, int limit) {
  std::vector<int> found;
  for (int d = 1; d <= limit; ++d) {
    if (value % d == 0) found.push_back(d);
  }
  return found;
}

std::vector<int> up_to(std::int64_t limit) {
  std::vector<int> all;
  for (int n = 1; n <= limit; ++n) all.push_back(n);
  return all;
}

bool fits_some(const ModelConfig& model, const Layout& layout,
               const std::vector<std::int64_t>& batches, std::int64_t micro) {
  return std::any_of(batches.begin(), batches.end(), [&](std::int64_t batch) {
    return illegal_reasons(model, layout, batch, micro).empty();
  });
}

class Enumeration {
 public:
  Enumeration(const Config& config, int world)
      : config_(config), world_(world), batches_(batches_of(config.batch)) {
    const ParallelConfig& asked = config.parallel;
    tp_ = choices(asked.tp, divisors(config.model.heads, world));
    pp_ = choices(asked.pp, up_to(std::min<std::int64_t>(config.model.layers, world)));
  }

  LayoutChoice run() {
    const ParallelConfig& asked = config_.parallel;
    if (asked.dp && asked.tp && asked.pp) {
      std::int64_t const ranks = std::int64_t{*asked.dp} * *asked.tp * *asked.pp;
      if (ranks > world_) {
        throw ConfigError(fmt::format(
            "parallel: dp {} x tp {} x pp {} is {} ranks, the cluster has {}; ask for less, or for "
            "more nodes (cluster.nodes, cluster.gpus_per_node, --world)",
            *asked.dp, *asked.tp, *asked.pp, ranks, world_));
      }
    }
    // Idle ranks are legal, so where nothing fills the world, what uses most of it counts.
    for (int ranks = world_; ranks >= 1; --ranks) {
      std::vector<Layout> layouts = filling(ranks);
      if (!layouts.empty()) return {std::move(layouts), ranks};
    }
    throw ConfigError(explanation());
  }

 private:
  std::vector<Layout> filling(int ranks) {
    std::vector<Layout> found;
    for (int tp : tp_) {
      for (int pp : pp_) {
        std::int64_t const stage = std::int64_t{tp} * pp;
        if (stage > ranks || ranks % stage != 0) continue;
        int const dp = static_cast<int>(ranks / stage);
        if (!config_.parallel.dp || *config_.parallel.dp == dp) add(dp, tp, pp, found);
      }
    }
    return found;
  }

  void add(int dp, int tp, int pp, std::vector<Layout>& found) {
    const ParallelConfig& asked = config_.parallel;
    // Interleaving cuts the layers into equal chunks.
    std::vector<int> cuts{1};
    if (config_.model.layers % pp == 0) {
      cuts = divisors(config_.model.layers / pp, static_cast<int>(config_.model.layers / pp));
    }
    for (int v : choices(asked.virtual_stages, cuts)) {
      for (int zero : choices(asked.zero, {0, 1})) {
        for (bool sequence : choices<bool>(asked.sequence_parallel, {false, true})) {
          Layout const layout{dp, tp, pp, v, zero, sequence};
          if (fits_some(config_.model, layout, batches_, config_.batch.micro.value_or(0))) {
            found.push_back(layout);
          } else {
            refused_.push_back(layout);
          }
        }
      }
    }
  }

  // What stands in the way of the layouts that would use most ranks.
  std::vector<std::string> explanation() const {
    constexpr std::size_t kShown = 8;
    std::vector<std::string> problems;
    for (const Layout& layout : refused_) {
      for (std::int64_t batch : batches_) {
        for (std::string& reason :
             illegal_reasons(config_.model, layout, batch, config_.batch.micro.value_or(0))) {
          bool const known = std::find(problems.begin(), problems.end(), reason) != problems.end();
          if (!known && problems.size() < kShown) problems.push_back(std::move(reason));
        }
      }
    }
    if (problems.empty()) {
      problems.push_back(fmt::format(
          "parallel: no dp x tp x pp of the keys given makes at most {} ranks", world_));
    }
    return problems;
  }

  const Config& config_;
  int world_;
  std::vector<std::int64_t> batches_;
  std::vector<int> tp_, pp_;
  std::vector<Layout> refused_;
};

}  // namespace

std::vector<std::int64_t> batches_of(const BatchConfig& batch) {
  std::set<std::int64_t> found{batch.sequences};
  if (!batch.schedule.empty()) {
    for (const BatchStep& step : batch.schedule) found.insert(step.sequences);
    return {found.begin(), found.end()};
  }
  std::int64_t const low = batch.min > 0 ? batch.min : batch.sequences;
  std::int64_t const high = batch.max > 0 ? batch.max : batch.sequences;
  found.insert(low);
  found.insert(high);
  auto const keep = [&](std::int64_t sequences) {
    if (sequences >= low && sequences <= high) found.insert(sequences);
  };
  for (std::int64_t rung = batch.sequences; rung >= low; rung /= 2) {
    keep(rung);
    if (rung % 4 == 0) keep(rung / 4 * 3);
    if (rung % 2 != 0) break;
  }
  for (std::int64_t rung = batch.sequences; rung <= high; rung *= 2) {
    keep(rung);
    if (rung % 2 == 0) keep(rung / 2 * 3);
  }
  return {found.begin(), found.end()};
}

LayoutChoice layouts_of(const Config& config, int world) {
  return Enumeration(config, world).run();
}

}  // namespace copus
