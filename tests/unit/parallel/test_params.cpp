#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "copus/parallel/params.h"
#include "models.h"

namespace copus {
namespace {

Layout layout_of(int dp, int tp, int pp) {
  return {dp, tp, pp, 1, 0, false};
}

// How often each element of each tensor is covered; `add` counts a box.
class Coverage {
 public:
  explicit Coverage(const std::vector<Param>& table) : table_(table) {
    for (const Param& param : table) counts_.emplace_back(static_cast<std::size_t>(param.numel()));
  }
  void add(int param, const Box& box) {
    auto const p = static_cast<std::size_t>(param);
    for (std::int64_t r = box.begin[0]; r < box.begin[0] + box.size[0]; ++r) {
      for (std::int64_t c = box.begin[1]; c < box.begin[1] + box.size[1]; ++c) {
        ++counts_[p].at(static_cast<std::size_t>(r * table_[p].size[1] + c));
      }
    }
  }
  bool is_once() const {
    return std::all_of(counts_.begin(), counts_.end(), [](const auto& tensor) {
      return std::all_of(tensor.begin(), tensor.end(), [](int n) { return n == 1; });
    });
  }

 private:
  const std::vector<Param>& table_;
  std::vector<std::vector<int>> counts_;
};

const LocalParam& local_of(const std::vector<Param>& table, const FlatLayout& flat, Role role,
                           int layer) {
  const LocalParam* local = flat.find(table, role, layer);
  REQUIRE(local != nullptr);
  return *local;
}

}  // namespace

TEST_CASE("the parameter counts of known models come out") {
  ModelConfig gpt2 = model_of(Family::gpt2, 12, 768, 12, 12, 3072, 50257, true);
  gpt2.max_positions = 1024;
  CHECK(parameter_count(gpt2) == 124439808);
  CHECK(matmul_parameter_count(gpt2) == 12LL * 12 * 768 * 768 + 50257LL * 768);
  ModelConfig const llama = model_of(Family::llama, 32, 4096, 32, 32, 11008, 32000, false);
  CHECK(parameter_count(llama) == 6738415616);
  CHECK(matmul_parameter_count(llama) ==
        32LL * (4LL * 4096 * 4096 + 3LL * 4096 * 11008) + 32000LL * 4096);
}

TEST_CASE("weights have the initial spread, decay and names of their role") {
  for (const ModelConfig& model : small_models()) {
    float const out_std = 0.02f / std::sqrt(2.0f * static_cast<float>(model.layers));
    for (const Param& param : parameter_table(model)) {
      CAPTURE(param.name);
      CHECK(param.decays == (param.dims == 2));
      bool const is_out = param.role == Role::attn_out || param.role == Role::down;
      bool const is_bias = param.name.ends_with(".bias");
      if (param.dims == 2) {
        CHECK(param.init_std == Approx(is_out ? out_std : 0.02f).epsilon(1e-6));
      } else {
        CHECK(param.init_std == 0.0f);
        CHECK(param.init_value == (is_bias ? 0.0f : 1.0f));
        CHECK(param.size[0] == 1);
      }
    }
  }
  std::vector<Param> const table = parameter_table(small_models()[0]);
  auto const q = std::find_if(table.begin(), table.end(), [](const Param& param) {
    return param.role == Role::q && param.layer == 3;
  });
  REQUIRE(q != table.end());
  CHECK(q->name == "layers.3.attn.q.weight");
}

TEST_CASE("the counted boxes of every layout up to 16 ranks cover every element exactly once") {
  for (const ModelConfig& model : small_models()) {
    std::vector<Param> const table = parameter_table(model);
    for (const Layout& layout : layouts_up_to(model, 16)) {
      if (layout.dp > 1 || layout.zero > 0) continue;  // boxes do not depend on them
      CAPTURE(to_string(layout), model.layers);
      Coverage coverage(table);
      for (int rank = 0; rank < layout.world(); ++rank) {
        Coord const at = coord_of(layout, rank);
        for (const LocalParam& local : flat_layout(model, layout, at.tp, at.pp).params) {
          if (local.counted) coverage.add(local.param, local.box);
        }
      }
      CHECK(coverage.is_once());
    }
  }
}

TEST_CASE("as many ranks hold a box as its replicas say, and one of them counts it") {
  for (const ModelConfig& model : small_models()) {
    for (int tp : {1, 2, 4, 8, 16}) {
      Layout const layout = layout_of(1, tp, 1);
      if (!illegal_reasons(model, layout, 0, 0).empty()) continue;
      std::vector<FlatLayout> flats;
      for (int r = 0; r < tp; ++r) flats.push_back(flat_layout(model, layout, r, 0));
      for (std::size_t i = 0; i < flats[0].params.size(); ++i) {
        for (const FlatLayout& flat : flats) {
          const LocalParam& local = flat.params[i];
          CAPTURE(tp, local.param);
          CHECK(local.offset == flats[0].params[i].offset);
          if (local.box.empty()) continue;
          int same = 0, counted = 0;
          for (const FlatLayout& other : flats) {
            if (other.params[i].box != local.box) continue;
            ++same;
            counted += other.params[i].counted ? 1 : 0;
          }
          CHECK(same == local.replicas);
          CHECK(counted == 1);
        }
      }
    }
  }
}

TEST_CASE(
    "U4: with 2 kv heads and tp 8 each rank holds the kv head of its query heads, counted once") {
  ModelConfig const model = model_of(Family::qwen2, 1, 32, 16, 2, 16, 10, false);  // D = 2
  std::vector<Param> const table = parameter_table(model);
  for (int tp : {4, 8}) {
    for (int r = 0; r < tp; ++r) {
      FlatLayout const flat = flat_layout(model, layout_of(1, tp, 1), r, 0);
      std::int64_t const first_query_head = r * 16 / tp;
      std::int64_t const kv_head = first_query_head / 8;  // 16 / 2 query heads a kv head
      for (Role role : {Role::k, Role::v}) {
        const LocalParam& local = local_of(table, flat, role, 0);
        CHECK(local.box == Box{{kv_head * 2, 0}, {2, 32}});
        CHECK(local.replicas == tp / 2);
        CHECK(local.counted == (r % (tp / 2) == 0));
      }
      CHECK(local_of(table, flat, Role::k_bias, 0).box == Box{{0, kv_head * 2}, {1, 2}});
    }
  }
}

TEST_CASE("E1: a vocabulary that tp does not divide is padded in memory and in no box") {
  ModelConfig const model = model_of(Family::gpt2, 1, 8, 4, 4, 8, 50257, true);
  std::vector<Param> const table = parameter_table(model);
  CHECK(padded_vocab(model, layout_of(1, 1, 1)) == 50257);
  Layout const layout = layout_of(1, 2, 1);
  CHECK(padded_vocab(model, layout) == 50258);
  FlatLayout const flat = flat_layout(model, layout, 1, 0);
  const LocalParam& last = local_of(table, flat, Role::embed, -1);
  CHECK(last.local_size[0] == 25129);
  CHECK(last.box == Box{{25129, 0}, {25128, 8}});
  // 5 rows over 4 ranks are 2 2 1 0.
  ModelConfig const tiny = model_of(Family::gpt2, 1, 8, 4, 4, 8, 5, true);
  const LocalParam none =
      local_of(parameter_table(tiny), flat_layout(tiny, layout_of(1, 4, 1), 3, 0), Role::embed, -1);
  CHECK(none.box.empty());
  CHECK(none.local_size[0] == 2);
}

TEST_CASE("q, k and v, their biases, and gate and up lie side by side in the flat buffer") {
  ModelConfig const model = small_models()[1];
  std::vector<Param> const table = parameter_table(model);
  FlatLayout const flat = flat_layout(model, layout_of(3, 2, 1), 1, 0);
  auto const follows = [&](Role a, Role b) {
    const LocalParam& first = local_of(table, flat, a, 1);
    return local_of(table, flat, b, 1).offset == first.offset + first.numel();
  };
  CHECK(follows(Role::q, Role::k));
  CHECK(follows(Role::k, Role::v));
  CHECK(follows(Role::q_bias, Role::k_bias));
  CHECK(follows(Role::k_bias, Role::v_bias));
  CHECK(follows(Role::gate, Role::up));
}

TEST_CASE(
    "with a tied pair over stages the first owns the state and the last holds a copy that counts "
    "for nothing") {
  ModelConfig const model = small_models()[2];
  std::vector<Param> const table = parameter_table(model);
  Layout const layout = layout_of(2, 2, 3);
  FlatLayout const first = flat_layout(model, layout, 1, 0),
                   last = flat_layout(model, layout, 1, 2);
  const LocalParam& master = local_of(table, first, Role::embed, -1);
  const LocalParam& copy = local_of(table, last, Role::embed, -1);
  CHECK(master.box == copy.box);
  CHECK(master.counted);
  CHECK_FALSE(copy.counted);
  CHECK(last.buckets.back().tied_copy);
  CHECK(copy.offset == last.state_numel);
  CHECK(first.state_numel == first.numel);
  CHECK(flat_layout(model, layout, 1, 1).find(table, Role::embed, -1) == nullptr);
  // On one stage the one embedding serves both ends.
  FlatLayout const whole = flat_layout(model, layout_of(1, 1, 1), 0, 0);
  CHECK(std::count_if(whole.params.begin(), whole.params.end(),
                      [](const LocalParam& local) { return local.param == 0; }) == 1);
}

TEST_CASE("R15 S9: buckets of dp 1 2 3 5 7 8 are multiples of it and hold whole tensors") {
  for (const ModelConfig& model : small_models()) {
    for (int dp : {1, 2, 3, 5, 7, 8}) {
      Layout const layout = layout_of(dp, 2, 2);
      for (int pp_rank : {0, 1}) {
        FlatLayout const flat = flat_layout(model, layout, 1, pp_rank);
        CAPTURE(dp, pp_rank, model.layers);
        std::int64_t next = 0;
        for (const Bucket& bucket : flat.buckets) {
          CHECK(bucket.offset == next);
          CHECK(bucket.size % dp == 0);
          next += bucket.size;
        }
        CHECK(flat.numel == next);
        for (const LocalParam& local : flat.params) {
          const Bucket& bucket = flat.buckets[static_cast<std::size_t>(local.bucket)];
          CHECK(local.offset >= bucket.offset);
          CHECK(local.offset + local.numel() <= bucket.offset + bucket.size);
        }
      }
    }
  }
}

TEST_CASE(
    "R15 S9: the pieces of dp 1 2 3 5 7 8 cut every box into at most three each, no element "
    "twice") {
  for (const ModelConfig& model : small_models()) {
    std::vector<Param> const table = parameter_table(model);
    for (int dp : {1, 2, 3, 5, 7, 8}) {
      Layout const layout = layout_of(dp, 4, 1);
      Coverage coverage(table);
      std::int64_t covered = 0;
      for (int r = 0; r < 4; ++r) {
        FlatLayout const flat = flat_layout(model, layout, r, 0);
        for (const Bucket& bucket : flat.buckets) {
          std::int64_t next = bucket.offset;
          for (int d = 0; d < dp; ++d) {
            Bucket const piece = owned_piece(bucket, layout, d);
            CHECK(piece.offset == next);
            next += piece.size;
            for (const LocalParam& local : flat.params) {
              std::vector<BoxPiece> const boxes =
                  boxes_in(local, piece.offset, piece.offset + piece.size);
              CHECK(boxes.size() <= 3);
              for (const BoxPiece& part : boxes) {
                // Its first element lies where the local block has it, inside the piece.
                std::int64_t const row = part.box.begin[0] - local.box.begin[0];
                std::int64_t const col = part.box.begin[1] - local.box.begin[1];
                CHECK(part.offset == local.offset + row * local.local_size[1] + col);
                CHECK(part.offset >= piece.offset);
                CHECK(intersect(part.box, local.box) == part.box);
                if (local.counted) coverage.add(part.param, part.box);
                covered += part.box.numel();
              }
            }
          }
          CHECK(next == bucket.offset + bucket.size);
        }
      }
      CHECK(coverage.is_once());
      CHECK(covered > parameter_count(model));  // replicas are cut too
    }
  }
}

TEST_CASE("E24: 3 elements over 8 ranks are padded to 8, owned once, and padding is in no box") {
  Layout const layout = layout_of(8, 1, 1);
  LocalParam local;
  local.box.size = local.local_size = {1, 3};
  Bucket const bucket{.offset = 0, .size = 8};
  std::int64_t owned = 0;
  for (int d = 0; d < 8; ++d) {
    Bucket const piece = owned_piece(bucket, layout, d);
    CHECK(piece.size == 1);
    for (const BoxPiece& part : boxes_in(local, piece.offset, piece.offset + piece.size)) {
      owned += part.box.numel();
    }
  }
  CHECK(owned == 3);
  // The real table rounds up in the same way: the smallest multiple of dp.
  ModelConfig const model = small_models()[0];
  for (const Bucket& padded : flat_layout(model, layout, 0, 0).buckets) {
    std::int64_t used = 0;
    FlatLayout const flat = flat_layout(model, layout, 0, 0);
    for (const LocalParam& held : flat.params) {
      if (flat.buckets[static_cast<std::size_t>(held.bucket)].offset == padded.offset) {
        used += held.numel();
      }
    }
    CHECK(padded.size - used >= 0);
    CHECK(padded.size - used < 8);
  }
}

}  // namespace copus
