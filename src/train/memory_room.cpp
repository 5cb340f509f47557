#include "train/memory_room.h"

#include <fmt/format.h>

#include <functional>
#include <utility>
#include <vector>

#include "copus/core/config_io.h"
#include "copus/core/units.h"
#include "copus/train/engine.h"
#include "copus/train/report.h"

namespace copus {
namespace {

std::string bytes(std::int64_t n) {
  return human_bytes(static_cast<double>(n));
}

// The change to the run that costs least and fits, in words; empty where none of these does.
std::string what_fits(const Config& config, const Layout& layout, std::int64_t micro, int pp_rank,
                      std::int64_t free_bytes, AttentionLibrary library) {
  auto const fits = [&](const Config& other, const Layout& cut, std::int64_t sequences) {
    return engine_memory(other, cut, sequences, pp_rank, library).total() + kDeviceReserveBytes <=
           free_bytes;
  };
  Recompute const now = config.parallel.recompute.value_or(Recompute::none);
  for (Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    if (recompute < now) continue;
    Config other = config;
    other.parallel.recompute = recompute;
    for (std::int64_t smaller = micro; smaller >= 1; --smaller) {
      if (micro % smaller != 0 || !fits(other, layout, smaller)) continue;
      if (recompute == now) return fmt::format("batch.micro {} fits", smaller);
      return fmt::format("batch.micro {} with parallel.recompute \"{}\" fits", smaller,
                         name_of(recompute));
    }
  }
  Config least = config;
  least.parallel.recompute = Recompute::full;
  Layout cut = layout;
  cut.zero = 1;
  if (layout.dp > 1 && layout.zero == 0 && fits(least, cut, 1))
    return "parallel.zero 1 with batch.micro 1 and parallel.recompute \"full\" fits";
  return "no micro-batch does: more ranks are needed (parallel.tp, parallel.pp, or parallel.dp "
         "with parallel.zero 1)";
}

}  // namespace

std::string memory_problem(const Config& config, const Layout& layout, std::int64_t micro, int rank,
                           std::int64_t free_bytes, AttentionLibrary library) {
  if (rank >= layout.world()) return "";
  int const pp_rank = coord_of(layout, rank).pp;
  MemoryPlan const plan = engine_memory(config, layout, micro, pp_rank, library);
  if (plan.total() + kDeviceReserveBytes <= free_bytes) return "";
  std::string text = fmt::format(
      "batch.micro: {}: a rank needs {} of its GPU and {} to compute with, and has {} free; {}",
      micro, bytes(plan.total()), bytes(kDeviceReserveBytes), bytes(free_bytes),
      what_fits(config, layout, micro, pp_rank, free_bytes, library));
  for (const std::string& line : memory_table(plan)) text += "\n" + line;
  return text;
}

}  // namespace copus
