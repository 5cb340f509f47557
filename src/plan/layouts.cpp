#include <fmt/format.h>

#include <algorithm>
#include <iterator>
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

// What batches must be multiples of to be cut over dp ranks, for every dp that is in play.
std::vector<std::int64_t> units_of(const Config& config, int world) {
  std::vector<std::int64_t> units;
  std::vector<int> const all =
      config.parallel.dp ? std::vector<int>{*config.parallel.dp} : divisors(world, world);
  for (int dp : all) units.push_back(dp * config.batch.micro.value_or(1));
  return units;
}

// Adds to a ladder what lies too far apart for whoever takes multiples of `unit` alone: a decision
// goes no farther than from one to its double. One that takes none of the ladder is left out.
void fill_gaps(std::int64_t unit, std::int64_t low, std::int64_t high,
               std::set<std::int64_t>& ladder) {
  std::set<std::int64_t> mine;
  std::copy_if(ladder.begin(), ladder.end(), std::inserter(mine, mine.end()),
               [unit](std::int64_t batch) { return batch % unit == 0; });
  if (mine.empty()) return;
  mine.insert((low + unit - 1) / unit * unit);
  mine.insert(high / unit * unit);
  for (auto at = mine.begin(); std::next(at) != mine.end(); ++at) {
    if (*std::next(at) > 2 * *at) mine.insert(2 * *at);
  }
  ladder.insert(mine.begin(), mine.end());
}

bool fits_some(const ModelConfig& model, const Layout& layout,
               const std::vector<std::int64_t>& batches, std::int64_t micro) {
  return std::any_of(batches.begin(), batches.end(), [&](std::int64_t batch) {
    return illegal_reasons(model, layout, batch, micro).empty();
  });
}

class Enumeration {
 public:
  Enumeration(const Config& config, int world, CandidateUse use)
      : config_(config), world_(world), use_(use), batches_(batches_of(config, world)) {
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
    ParallelConfig asked = config_.parallel;
    if (use_ != CandidateUse::list) {
      if (pp == 1) asked.virtual_stages = 1;
      if (tp == 1) asked.sequence_parallel = false;
      if (dp == 1) asked.zero = asked.zero.value_or(0);
    }
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
  CandidateUse use_;
  std::vector<std::int64_t> batches_;
  std::vector<int> tp_, pp_;
  std::vector<Layout> refused_;
};

}  // namespace

std::vector<std::int64_t> batches_of(const Config& config, int world) {
  const BatchConfig& batch = config.batch;
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
  for (std::int64_t unit : units_of(config, world)) fill_gaps(unit, low, high, found);
  return {found.begin(), found.end()};
}

LayoutChoice layouts_of(const Config& config, int world, CandidateUse use) {
  return Enumeration(config, world, use).run();
}

}  // namespace copus
