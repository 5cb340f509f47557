#include "copus/state/state_hash.h"

#include "state/tensor_salt.h"

namespace copus {

std::vector<std::uint64_t> hash_state(const ModelConfig& model, const StateShard& shard,
                                      const TrainState& state, bool every_copy, Backend& backend) {
  std::vector<Param> const table = parameter_table(model);
  std::vector<std::uint64_t> hashes(3 * table.size());
  const TensorView* const buffers[] = {&state.master, &state.m, &state.v};
  for (int part = 0; part < 3; ++part) {
    for (const StateBox& held : shard.boxes) {
      if (!every_copy && !held.counted) continue;
      auto const param = static_cast<std::size_t>(held.param);
      std::int64_t const width = table[param].size[1];
      TensorView rows(buffers[part]->ptr<float>() + held.offset, DType::f32,
                      {held.box.size[0], held.box.size[1]});
      rows.stride[0] = held.row_stride;
      std::int64_t const first = held.box.begin[0] * width + held.box.begin[1];
      hashes[static_cast<std::size_t>(part) * table.size() + param] +=
          backend.hash(rows, {static_cast<std::uint64_t>(first), static_cast<std::uint64_t>(width),
                              detail::tensor_salt(held.param, part)});
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
