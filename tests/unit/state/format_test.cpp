// The format of a file is said by the file alone: nothing that was read before decides how the next
// one is read.
#include <catch2/catch.hpp>

#include "copus/state/checkpoint.h"
#include "state/checkpoint_files.h"
#include "state_fixture.h"

using namespace copus;
using namespace copus::test;

namespace {

struct Loaded {
  ModelConfig config;
  std::vector<Param> table;
  FlatLayout layout;
  std::vector<float> master, m, v;
  TrainState state;

  explicit Loaded(const std::string& directory)
      : config(read_hf_config(directory)),
        table(parameter_table(config)),
        layout(flat_layout(config, {}, 0, 0)) {
    for (auto* values : {&master, &m, &v}) values->resize(static_cast<std::size_t>(layout.numel));
    state.master = TensorView(master.data(), DType::f32, {layout.numel});
    state.m = TensorView(m.data(), DType::f32, {layout.numel});
    state.v = TensorView(v.data(), DType::f32, {layout.numel});
  }
  Loaded(const Loaded&) = delete;
  Loaded& operator=(const Loaded&) = delete;

  FlatModel model() const { return {config, table, layout}; }
};

std::vector<float> weights_of(const std::string& directory) {
  Loaded rank(directory);
  load_model_weights(directory, rank.model(), host_writer(rank.state));
  return rank.master;
}

}  // namespace

TEST_CASE("R14: a model reads the same whatever was read before it, first load or later") {
  TempFolder const folder;
  // GPT-2 files hold their products' tensors transposed and fused, the others do not.
  std::vector<std::vector<float>> first;
  for (const std::string& name : kGolden) first.push_back(weights_of(golden(name)));
  for (std::size_t i = kGolden.size(); i-- > 0;) {
    INFO(kGolden[i]);
    CHECK(weights_of(golden(kGolden[i])) == first[i]);
    CHECK(weights_of(golden(kGolden[i])) == first[i]);
    std::string const imported = folder / kGolden[i];
    import_checkpoint(golden(kGolden[i]), imported);
    CHECK(weights_of(imported) == first[i]);
  }
}

TEST_CASE("R14: a checkpoint of another format is refused by both numbers, and changes no later") {
  TempFolder const folder;
  Loaded rank(golden("gpt2"));
  load_model_weights(golden("gpt2"), rank.model(), host_writer(rank.state));
  std::vector<float> const weights = rank.master;
  auto const save = [&](std::int64_t step) {
    Counters counters = rank.state.counters;
    counters.step = step;
    return save_checkpoint(folder.path, rank.model(), counters, host_reader(rank.state),
                           {"bytes", 256}, 3)
        .directory;
  };
  std::string const older = save(1), newer = save(2), path = newer + "/state.json";
  std::string const good = read_bytes(path);
  nlohmann::json state = nlohmann::json::parse(good);
  state["format"] = kCheckpointFormat + 1;
  write_bytes(path, state_text(state));  // whole, with a right checksum
  CHECK(names(problems_of([&] { load_train_state(newer, rank.model(), host_writer(rank.state)); }),
              "format is 2; accepted: 1"));
  // Nor is an older one gone on with instead.
  CHECK_THROWS_WITH(newest_complete(folder.path), Catch::Contains("format is 2; accepted: 1"));
  for (const std::string& directory : {older, newer}) {
    write_bytes(path, good);
    std::fill(rank.master.begin(), rank.master.end(), 0.0f);
    load_train_state(directory, rank.model(), host_writer(rank.state));
    CHECK(rank.master == weights);
  }
}
