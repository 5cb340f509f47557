// An imported model under any layout: every rank its own rows, and together the model again.
#include <catch2/catch.hpp>
#include <limits>
#include <map>

#include "copus/parallel/layout.h"
#include "state_fixture.h"

using namespace copus;
using namespace copus::test;

namespace {

// One rank's buffer, filled from a model directory. NaN where nothing was written.
struct LoadedRank {
  FlatLayout layout;
  std::vector<float> values;

  LoadedRank(const std::string& dir, const ModelConfig& model, const std::vector<Param>& table,
             const Layout& cut, int tp_rank, int pp_rank)
      : layout(flat_layout(model, cut, tp_rank, pp_rank)),
        values(static_cast<std::size_t>(layout.numel), std::numeric_limits<float>::quiet_NaN()) {
    TrainState state;
    state.master = TensorView(values.data(), DType::f32, {layout.numel});
    load_model_weights(dir, {model, table, layout}, host_writer(state));
  }
  float at(const LocalParam& local, std::int64_t row, std::int64_t col) const {
    return values[static_cast<std::size_t>(local.offset + row * local.local_size[1] + col)];
  }
};

using Whole = std::map<int, std::vector<float>>;  // by index into the table

Whole read_all_of(const HfModel& hf, const std::vector<Param>& table) {
  Whole whole;
  for (std::size_t i = 0; i < table.size(); ++i) {
    auto& values = whole[static_cast<int>(i)];
    values.resize(static_cast<std::size_t>(table[i].numel()));
    hf.read(table[i], {{0, 0}, table[i].size}, values);
  }
  return whole;
}

// Compares what a rank holds with the whole model, and puts it into `joined`.
int wrong_elements(const LoadedRank& rank, const std::vector<Param>& table, const Whole& whole,
                   Whole& joined) {
  int wrong = 0;
  for (const LocalParam& local : rank.layout.params) {
    std::int64_t const width = table[static_cast<std::size_t>(local.param)].size[1];
    auto& out = joined[local.param];
    out.resize(whole.at(local.param).size(), std::numeric_limits<float>::quiet_NaN());
    for (std::int64_t r = 0; r < local.box.size[0]; ++r) {
      for (std::int64_t k = 0; k < local.box.size[1]; ++k) {
        auto const index =
            static_cast<std::size_t>((local.box.begin[0] + r) * width + local.box.begin[1] + k);
        out[index] = rank.at(local, r, k);
        if (!(out[index] == whole.at(local.param)[index])) ++wrong;
      }
    }
  }
  return wrong;
}

}  // namespace

TEST_CASE(
    "R12, U4: under any tp and pp each rank reads its own rows of q, k, v, gate and up, kv heads "
    "repeated where there are fewer than ranks") {
  int layouts = 0, more_ranks_than_kv_heads = 0;
  for (const std::string& name : kGolden) {
    TempFolder const folder;
    import_checkpoint(golden(name), folder / "in");
    ModelConfig const model = read_hf_config(golden(name));
    auto const table = parameter_table(model);
    Whole const whole = read_all_of(HfModel(golden(name), model), table);
    for (int const tp : {1, 2, 3, 4, 8}) {
      for (int const pp : {1, 2}) {
        Layout cut;
        cut.tp = tp;
        cut.pp = pp;
        if (!illegal_reasons(model, cut, 8, 1).empty()) continue;
        ++layouts;
        more_ranks_than_kv_heads += tp > model.kv_heads;
        INFO(name << " tp " << tp << " pp " << pp);
        Whole joined;
        int wrong = 0;
        for (int p = 0; p < pp; ++p) {
          for (int t = 0; t < tp; ++t) {
            wrong += wrong_elements(LoadedRank(folder / "in", model, table, cut, t, p), table,
                                    whole, joined);
          }
        }
        CHECK(wrong == 0);
        CHECK(joined == whole);  // no element is left out
      }
    }
  }
  CHECK(layouts >= 20);
  CHECK(more_ranks_than_kv_heads >= 2);
}
