#include "copus/state/checkpoint_parts.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>

#include "copus/core/dtype.h"
#include "copus/state/hf.h"

namespace copus {
namespace {

constexpr std::int64_t kWorthAFile = 64 << 10;  // bytes of weights

// Tensors that one tensor of the file holds.
struct Unit {
  std::vector<int> params;
  std::int64_t numel = 0;
};

std::vector<Unit> units_of(const ModelConfig& model, const std::vector<Param>& table) {
  std::vector<Unit> units;
  std::map<std::string, std::size_t> known;
  for (std::size_t i = 0; i < table.size(); ++i) {
    auto const [place, is_new] = known.try_emplace(hf_place(model, table[i]).name, units.size());
    if (is_new) units.emplace_back();
    Unit& unit = units[place->second];
    unit.params.push_back(static_cast<int>(i));
    unit.numel += table[i].numel();
  }
  return units;
}

}  // namespace

std::vector<CheckpointPart> checkpoint_parts(const ModelConfig& model, int writers) {
  std::vector<Param> const table = parameter_table(model);
  std::vector<Unit> units = units_of(model, table);
  std::int64_t const bytes = parameter_count(model) * size_of(DType::f32);
  std::int64_t const count = std::clamp<std::int64_t>(
      bytes / kWorthAFile, 1,
      std::min<std::int64_t>(writers, static_cast<std::int64_t>(units.size())));
  // The largest first, each to the part that has least so far.
  std::stable_sort(units.begin(), units.end(),
                   [](const Unit& a, const Unit& b) { return a.numel > b.numel; });
  std::vector<CheckpointPart> parts(static_cast<std::size_t>(count));
  std::vector<std::int64_t> sizes(parts.size());
  for (const Unit& unit : units) {
    auto const least =
        static_cast<std::size_t>(std::min_element(sizes.begin(), sizes.end()) - sizes.begin());
    sizes[least] += unit.numel;
    std::vector<int>& params = parts[least].params;
    params.insert(params.end(), unit.params.begin(), unit.params.end());
  }
  for (CheckpointPart& part : parts) std::sort(part.params.begin(), part.params.end());
  return parts;
}

StateShard part_shard(const ModelConfig& model, const CheckpointPart& part) {
  std::vector<Param> const table = parameter_table(model);
  StateShard shard;
  for (int index : part.params) {
    const Param& param = table[static_cast<std::size_t>(index)];
    shard.boxes.push_back({.param = index,
                           .box = {{0, 0}, param.size},
                           .offset = shard.numel,
                           .row_stride = param.size[1],
                           .counted = true});
    shard.numel += param.numel();
  }
  return shard;
}

}  // namespace copus
