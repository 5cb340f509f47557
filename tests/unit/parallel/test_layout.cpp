#include <catch2/catch.hpp>

#include "copus/parallel/layout.h"
#include "models.h"

namespace copus {
namespace {

std::string only_reason(const ModelConfig& model, const Layout& layout, std::int64_t batch = 0,
                        std::int64_t micro = 0) {
  std::vector<std::string> const reasons = illegal_reasons(model, layout, batch, micro);
  REQUIRE(reasons.size() == 1);
  return reasons.front();
}

Layout layout_of(int dp, int tp, int pp, int v = 1) {
  return {dp, tp, pp, v, 0, false};
}

std::vector<std::int64_t> stage_sizes(std::int64_t layers, int pp) {
  std::vector<std::int64_t> sizes;
  std::int64_t next = 0;
  for (int stage = 0; stage < pp; ++stage) {
    LayerRange const range = layers_of(layers, layout_of(1, 1, pp), stage, 0);
    CHECK(range.begin == next);
    next = range.end;
    sizes.push_back(range.end - range.begin);
  }
  CHECK(next == layers);
  return sizes;
}

}  // namespace

TEST_CASE("a rank's place is that of rank = (pp DP + dp) TP + tp, and back") {
  Layout const layout = layout_of(3, 2, 4);
  for (int rank = 0; rank < layout.world(); ++rank) {
    Coord const at = coord_of(layout, rank);
    CHECK(rank_of(layout, at) == rank);
    CHECK(rank == (at.pp * 3 + at.dp) * 2 + at.tp);
  }
  CHECK(coord_of(layout, 1) == Coord{0, 1, 0});
  CHECK(coord_of(layout, 2) == Coord{1, 0, 0});
  CHECK(coord_of(layout, 6) == Coord{0, 0, 1});
}

TEST_CASE(
    "an uneven split gives the middle stages one layer more, then the first, never the last") {
  using Sizes = std::vector<std::int64_t>;
  CHECK(stage_sizes(8, 4) == Sizes{2, 2, 2, 2});
  CHECK(stage_sizes(9, 4) == Sizes{2, 3, 2, 2});
  CHECK(stage_sizes(10, 4) == Sizes{2, 3, 3, 2});
  CHECK(stage_sizes(11, 4) == Sizes{3, 3, 3, 2});
  CHECK(stage_sizes(3, 2) == Sizes{2, 1});
  CHECK(stage_sizes(5, 1) == Sizes{5});
  for (int pp = 1; pp <= 16; ++pp) {
    for (int layers = pp; layers <= 40; ++layers) {
      for (std::int64_t size : stage_sizes(layers, pp)) CHECK(size >= 1);
    }
  }
}

TEST_CASE("interleaved chunks go round the pipeline ranks in model order") {
  Layout const layout = layout_of(1, 1, 2, 3);
  CHECK(layers_of(12, layout, 0, 0) == LayerRange{0, 2});
  CHECK(layers_of(12, layout, 1, 0) == LayerRange{2, 4});
  CHECK(layers_of(12, layout, 0, 1) == LayerRange{4, 6});
  CHECK(layers_of(12, layout, 1, 2) == LayerRange{10, 12});
}

TEST_CASE("an illegal tp is refused with the nearest that fits") {
  ModelConfig model = model_of(Family::llama, 4, 48, 12, 4, 24, 100, false);
  CHECK_THAT(only_reason(model, layout_of(1, 8, 1)),
             Catch::Contains("model.heads 12") && Catch::EndsWith("4 or 12"));
  // 3 and 6 divide heads and ffn, but neither divides 4 kv heads nor is a multiple of them.
  CHECK_THAT(only_reason(model, layout_of(1, 6, 1)),
             Catch::Contains("model.kv_heads 4") && Catch::EndsWith("4 or 12"));
  model.ffn = 20;
  CHECK_THAT(only_reason(model, layout_of(1, 12, 1)),
             Catch::Contains("model.ffn 20") && Catch::EndsWith(": 4"));
  CHECK(illegal_reasons(model, layout_of(1, 4, 1), 0, 0).empty());
}

TEST_CASE(
    "U4: tp above the kv heads is legal where it is a multiple of them and refused where not") {
  ModelConfig const model = model_of(Family::llama, 1, 48, 24, 2, 24, 100, false);
  CHECK(illegal_reasons(model, layout_of(1, 8, 1), 0, 0).empty());
  CHECK(illegal_reasons(model, layout_of(1, 4, 1), 0, 0).empty());
  CHECK_THAT(only_reason(model, layout_of(1, 3, 1)), Catch::Contains("model.kv_heads 2"));
}

TEST_CASE("S9: a batch that dp x micro does not divide is refused with the nearest that fit") {
  ModelConfig const model = small_models()[0];
  CHECK(illegal_reasons(model, layout_of(2, 1, 1), 12, 3).empty());
  CHECK_THAT(only_reason(model, layout_of(2, 1, 1), 14, 3), Catch::EndsWith("12 or 18"));
  CHECK_THAT(only_reason(model, layout_of(8, 1, 1), 4, 1), Catch::EndsWith(": 8"));
  // pp is not part of it without virtual stages.
  CHECK(illegal_reasons(model, layout_of(2, 1, 4), 6, 3).empty());
}

TEST_CASE(
    "S9: with virtual stages pp must divide the micro-batches, or the nearest batches are named") {
  ModelConfig const model = small_models()[0];
  Layout const layout = layout_of(2, 1, 4, 2);
  CHECK(illegal_reasons(model, layout, 24, 3).empty());
  CHECK_THAT(only_reason(model, layout, 30, 3), Catch::EndsWith("24 or 48"));
  CHECK_THAT(only_reason(model, layout, 25, 3), Catch::EndsWith("24 or 48"));
}

TEST_CASE("a pipeline longer than the model or chunks of unequal size are refused") {
  ModelConfig const model = model_of(Family::llama, 6, 8, 4, 4, 8, 10, false);
  CHECK_THAT(only_reason(model, layout_of(1, 1, 7)), Catch::Contains("at most 6"));
  CHECK_THAT(only_reason(model, layout_of(1, 1, 2, 2)), Catch::EndsWith("1 or 3"));
  CHECK_THAT(only_reason(model, layout_of(1, 1, 4, 2)), Catch::EndsWith(": 1"));
}

TEST_CASE("every mistake of a layout is reported at once") {
  ModelConfig model = model_of(Family::llama, 4, 48, 12, 4, 24, 100, false);
  Layout layout = layout_of(2, 5, 9);
  layout.sequence_parallel = true;                          // 16 % 5
  CHECK(illegal_reasons(model, layout, 3, 1).size() == 6);  // heads, ffn, kv, seq, pp, batch
  CHECK(illegal_reasons(model, {0, 0, 0, 0, 2, false}, 1, 1).size() == 5);
}

TEST_CASE("a layout reads as the numbers a user typed") {
  CHECK(to_string(layout_of(2, 4, 1)) == "dp 2 x tp 4 x pp 1");
  CHECK(to_string({2, 2, 4, 2, 1, true}) ==
        "dp 2 x tp 2 x pp 4, virtual stages 2, zero 1, sequence parallel");
}

}  // namespace copus
