// A rank that holds a whole model, and what it leaves in a run directory.
#pragma once
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "copus/state/checkpoint.h"
#include "state_fixture.h"

namespace copus::test {

// A rank that holds a whole golden model, with arbitrary moments.
struct Rank {
  ModelConfig config;
  std::vector<Param> table;
  FlatLayout layout;
  std::vector<float> master, m, v;
  TrainState state;

  explicit Rank(const std::string& name)
      : config(read_hf_config(golden(name))),
        table(parameter_table(config)),
        layout(flat_layout(config, {}, 0, 0)) {
    auto const n = static_cast<std::size_t>(layout.numel);
    master.resize(n);
    m.resize(n);
    v.resize(n);
    state.master = TensorView(master.data(), DType::f32, {layout.numel});
    state.m = TensorView(m.data(), DType::f32, {layout.numel});
    state.v = TensorView(v.data(), DType::f32, {layout.numel});
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  FlatModel model() const { return {config, table, layout}; }
  void fill(unsigned seed) {
    std::mt19937 random(seed);
    for (auto* values : {&master, &m, &v})
      for (float& x : *values) x = static_cast<float>(random()) * 0x1p-32f - 0.5f;
  }
  SavedCheckpoint save(const std::string& run, std::int64_t step, std::int64_t keep = 3) const {
    Counters counters = state.counters;
    counters.step = step;
    return save_checkpoint(run, model(), counters, host_reader(state), {"bytes", 256}, keep);
  }
};

// The temporary names in a run's checkpoints folder.
inline int leftovers(const std::string& run) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(run + "/checkpoints"))
    count += entry.path().extension() == ".tmp" ? 1 : 0;
  return count;
}

}  // namespace copus::test
