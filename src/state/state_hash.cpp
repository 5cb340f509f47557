#include "copus/state/state_hash.h"

#include "state/element_hash.h"

namespace copus {

std::vector<std::uint64_t> hash_state(const ModelConfig& model, const StateShard& shard,
                                      const TrainState& state, bool every_copy) {
  std::vector<Param> const table = parameter_table(model);
  std::vector<std::uint64_t> hashes(3 * table.size());
  const TensorView* const buffers[] = {&state.master, &state.m, &state.v};
  for (int part = 0; part < 3; ++part) {
    for (const StateBox& held : shard.boxes) {
      if (!every_copy && !held.counted) continue;
      auto const param = static_cast<std::size_t>(held.param);
      std::uint64_t const salt = detail::tensor_salt(held.param, part);
      std::uint64_t sum = 0;
      for (std::int64_t row = 0; row < held.box.size[0]; ++row) {
        std::int64_t const first =
            (held.box.begin[0] + row) * table[param].size[1] + held.box.begin[1];
        sum += detail::row_hash(buffers[part]->ptr<float>() + held.offset + row * held.row_stride,
                                held.box.size[1], static_cast<std::uint64_t>(first), salt);
      }
      hashes[static_cast<std::size_t>(part) * table.size() + param] += sum;
    }
  }
  return hashes;
}

std::uint64_t join_hashes(const std::vector<std::uint64_t>& hashes) {
  std::uint64_t sum = 0;
  for (std::uint64_t hash : hashes) sum += hash;
  return sum;
}

}  // namespace copus
