#include <catch2/catch.hpp>

#include "copus/core/error.h"
#include "copus/parallel/memory.h"
#include "copus/parallel/params.h"
#include "copus/parallel/schedule.h"
#include "models.h"

namespace copus {
namespace {

MemoryPlan plan_of(const ModelConfig& model, const Layout& layout, int pp_rank = 0,
                   std::int64_t accumulation = 1, Precision precision = Precision::fp32,
                   Recompute recompute = Recompute::none) {
  return memory_plan(model, layout, 2, accumulation, precision, recompute, pp_rank);
}

std::int64_t bytes_of(const std::vector<TensorSpec>& specs) {
  std::int64_t sum = 0;
  for (const TensorSpec& spec : specs) sum += spec.bytes();
  return sum;
}

std::int64_t rounded(std::int64_t bytes) {
  return (bytes + 63) / 64 * 64;
}

// Bytes of one layer's saved activations for one micro-batch of 2, as one rank of tp 1 has them.
std::int64_t layer_bytes(const ModelConfig& model) {
  return bytes_of(saved_tensors(model, Layout{}, 2, Precision::fp32));
}

Layout pipeline(int pp, int v) {
  return {1, 1, pp, v, 0, false};
}

}  // namespace

TEST_CASE(
    "on one rank in fp32 the plan is weights, gradients, two moments and the tensors of the "
    "arena") {
  for (const ModelConfig& model : small_models()) {
    Layout const layout;
    MemoryPlan const plan = plan_of(model, layout, 0, 5);
    std::int64_t const flat = rounded(4 * parameter_count(model));
    CHECK(plan.bytes("weights") == flat);
    CHECK(plan.bytes("gradients") == flat);
    CHECK(plan.bytes("master") == 0);
    CHECK(plan.bytes("adam_m") == flat);
    CHECK(plan.bytes("adam_v") == flat);
    CHECK(plan.total() == 4 * flat + model.layers * layer_bytes(model) +
                              bytes_of(scratch_tensors(model, layout, 2, Precision::fp32)) +
                              bytes_of(head_tensors(model, layout, 2, Precision::fp32)));
  }
}

TEST_CASE(
    "saved activations are those of the live micro-batches that the schedules' simulation counts") {
  ModelConfig const model = model_of(Family::llama, 24, 4, 4, 2, 4, 11, false);
  for (int pp : {1, 2, 3, 4, 6}) {
    for (int v : {1, 2, 4}) {
      if (24 % (pp * v) != 0) continue;
      Layout const layout = pipeline(pp, v);
      for (std::int64_t m = v > 1 ? pp : 1; m <= 3 * pp; m += v > 1 ? pp : 1) {
        std::vector<Schedule> schedules;
        for (int rank = 0; rank < pp; ++rank) {
          schedules.push_back(pipeline_schedule(layout, rank, m, Messages::between_work));
        }
        auto const stages = static_cast<std::size_t>(pp * v);
        PipelineTimes const times{std::vector(stages, 1.0), std::vector(stages, 2.0), 0.0};
        PipelineRun const run = simulate_pipeline(layout, schedules, times);
        for (int rank = 0; rank < pp; ++rank) {
          CAPTURE(pp, v, m, rank);
          CHECK(plan_of(model, layout, rank, m).bytes("saved") ==
                run.live_peak[static_cast<std::size_t>(rank)] * (24 / (pp * v)) *
                    layer_bytes(model));
        }
      }
    }
  }
}

TEST_CASE("bf16 halves weights and activations and keeps a master in fp32") {
  ModelConfig const model = small_models()[0];
  MemoryPlan const full = plan_of(model, Layout{});
  MemoryPlan const half = plan_of(model, Layout{}, 0, 1, Precision::bf16);
  CHECK(half.bytes("weights") == rounded(2 * parameter_count(model)));
  CHECK(half.bytes("master") == full.bytes("adam_m"));
  CHECK(half.bytes("gradients") == full.bytes("gradients"));
  CHECK(half.bytes("batch") == full.bytes("batch"));
  // Row statistics stay as they are: rstd1, rstd2 (32 rows each) and lse (4 heads).
  std::int64_t const statistics = model.layers * 32 * 4 * (2 + 4);
  CHECK(half.bytes("saved") - statistics == (full.bytes("saved") - statistics) / 2);
}

TEST_CASE("ZeRO-1 divides master and moments by dp and nothing else") {
  for (const ModelConfig& model : small_models()) {
    for (int dp : {2, 3, 5, 8}) {
      Layout layout{dp, 2, 2, 1, 0, false};
      for (int stage : {0, 1}) {
        CAPTURE(dp, stage);
        layout.zero = 0;
        MemoryPlan const whole = plan_of(model, layout, stage);
        layout.zero = 1;
        MemoryPlan const cut = plan_of(model, layout, stage);
        FlatLayout const flat = flat_layout(model, layout, 0, stage);
        for (const MemorySegment& segment : cut.segments) {
          bool const is_state = segment.name == "master" || segment.name.starts_with("adam");
          if (is_state) {
            CHECK(segment.bytes == rounded(4 * flat.state_numel / dp));
          } else {
            CHECK(segment.bytes == whole.bytes(segment.name));
          }
        }
        CHECK(whole.bytes("master") == 0);
        CHECK(whole.bytes("adam_m") == rounded(4 * flat.state_numel));
      }
    }
    // With one data-parallel rank there is nothing to cut.
    Layout const alone{1, 1, 1, 1, 1, false};
    CHECK(plan_of(model, alone).total() == plan_of(model, Layout{}).total());
  }
}

TEST_CASE("what recompute does not keep is there once a layer instead of once a live layer") {
  ModelConfig const model = small_models()[0];
  Layout const layout = pipeline(4, 1);  // 4 layers and 4 live micro-batches on the first stage
  std::vector<TensorSpec> const specs = saved_tensors(model, layout, 2, Precision::fp32);
  auto const size = [&](Saved tensor) { return specs[static_cast<std::size_t>(tensor)].bytes(); };
  auto const plan = [&](Recompute recompute) {
    return plan_of(model, layout, 0, 8, Precision::fp32, recompute);
  };
  std::int64_t const attention = size(Saved::att) + size(Saved::lse), all = bytes_of(specs);
  CHECK(plan(Recompute::none).bytes("saved") == 16 * all);
  CHECK(plan(Recompute::none).bytes("recompute") == 0);
  CHECK(plan(Recompute::selective).bytes("saved") == 16 * (all - attention));
  CHECK(plan(Recompute::selective).bytes("recompute") == attention);
  CHECK(plan(Recompute::full).bytes("saved") == 16 * size(Saved::x_in));
  CHECK(plan(Recompute::full).bytes("recompute") == all - size(Saved::x_in));
}

TEST_CASE("each stage pays for what it holds: ids first, head and targets last, ties on both") {
  ModelConfig const model = small_models()[2];
  Layout const layout = pipeline(3, 1);
  std::vector<MemoryPlan> plans;
  for (int stage = 0; stage < 3; ++stage) plans.push_back(plan_of(model, layout, stage, 8));
  std::int64_t const row = 2 * 16 * 4;  // one micro-batch's ids: 2 samples of 16 tokens
  CHECK(plans[0].bytes("batch") == row);
  CHECK(plans[1].bytes("batch") == 0);
  CHECK(plans[2].bytes("batch") == row);
  CHECK(plans[0].bytes("head") == 0);
  CHECK(plans[2].bytes("head") == bytes_of(head_tensors(model, layout, 2, Precision::fp32)));
  std::int64_t const embedding = rounded(257 * 8 * 4);
  CHECK(plans[0].bytes("tied_gradient") == embedding);
  CHECK(plans[2].bytes("tied_gradient") == 0);
  // The copy of the embedding has weights and gradients and no moments.
  FlatLayout const last = flat_layout(model, layout, 0, 2);
  CHECK(last.numel - last.state_numel == 257 * 8);
  CHECK(plans[2].bytes("weights") == rounded(4 * last.numel));
  CHECK(plans[2].bytes("adam_m") == rounded(4 * last.state_numel));
  // Outputs and their gradients, on their way: the first stage receives no input, the last sends no
  // output.
  std::int64_t const message = 2 * 16 * 8 * 4;
  CHECK(plans[0].bytes("communication") == 2 * message);
  CHECK(plans[1].bytes("communication") == 3 * message);
  CHECK(plans[2].bytes("communication") == message);
  // With virtual stages every stage has chunks in the middle.
  for (int stage = 0; stage < 2; ++stage)
    CHECK(plan_of(model, pipeline(2, 2), stage, 8).bytes("communication") == 3 * message);
  for (const MemoryPlan& plan : plans) {
    CHECK(plan.segments.size() == plans[0].segments.size());
  }
  CHECK(plan_of(model, Layout{}).bytes("communication") == 0);
  CHECK_THROWS_AS(plans[0].bytes("no such segment"), InternalError);
}

TEST_CASE("the worst stage is the one whose plan needs most") {
  for (const ModelConfig& model : small_models()) {
    Layout const layout = pipeline(2, 1);
    StageMemory const worst = worst_stage(model, layout, 2, 4, Precision::fp32, Recompute::none);
    std::int64_t const first = plan_of(model, layout, 0, 4).total();
    std::int64_t const last = plan_of(model, layout, 1, 4).total();
    CHECK(worst.plan.total() == std::max(first, last));
    CHECK(worst.pp_rank == (last > first ? 1 : 0));
  }
}

TEST_CASE("one micro-batch in flight is enough when there is only one") {
  ModelConfig const model = small_models()[0];
  Layout const layout = pipeline(4, 1);
  CHECK(plan_of(model, layout, 0, 1).bytes("saved") == 4 * layer_bytes(model));
  CHECK(plan_of(model, layout, 0, 8).bytes("saved") == 4 * 4 * layer_bytes(model));
  CHECK(plan_of(model, layout, 3, 8).bytes("saved") == 4 * layer_bytes(model));
}

TEST_CASE("rows of logits begin where matrix libraries want them, also of an odd vocabulary") {
  for (std::int64_t const vocab : {257, 50257, 128256}) {
    ModelConfig const model = model_of(Family::llama, 2, 64, 8, 2, 32, vocab, true);
    for (int tp : {1, 2}) {
      Layout const layout{1, tp, 1, 1, 0};
      std::int64_t const width =
          head_tensors(model, layout, 2, Precision::bf16)[static_cast<std::size_t>(Head::logits)]
              .size[1];
      CHECK(width % 64 == 0);
      CHECK(width >= padded_vocab(model, layout) / tp);
      CHECK(width < padded_vocab(model, layout) / tp + 64);
    }
  }
}

TEST_CASE("a library's workspace for attention lies over the feed-forward's gradients") {
  ModelConfig model = model_of(Family::llama, 4, 64, 8, 2, 32, 257, false);
  Layout const layout{1, 2, 1, 1, 0};
  auto const plan = [&](Precision precision, AttentionLibrary library) {
    return memory_plan(model, layout, 2, 1, precision, Recompute::none, 0, false, library);
  };
  auto const size = [&](Scratch tensor, AttentionLibrary library) {
    return scratch_tensors(model, layout, 2, Precision::bf16,
                           library)[static_cast<std::size_t>(tensor)]
        .bytes();
  };
  // 4 of the 8 heads and 1 of the 2 kv heads are a rank's.
  std::int64_t const workspace = fused_attention_bytes({2, 4, 1, model.seq_len, model.head_dim()});
  CHECK(attention_workspace_bytes(model, layout, 2, Precision::bf16, AttentionLibrary::cudnn) ==
        workspace);
  MemoryPlan const without = plan(Precision::bf16, AttentionLibrary::none),
                   with = plan(Precision::bf16, AttentionLibrary::cudnn);
  std::int64_t const under = size(Scratch::d_gate_up, AttentionLibrary::none) +
                             size(Scratch::d_ffn, AttentionLibrary::none);
  CHECK(without.bytes("attention") == 0);
  CHECK(with.bytes("attention") == rounded(workspace - under));
  CHECK(with.bytes("scratch") == without.bytes("scratch"));
  CHECK(with.total() == without.total() + with.bytes("attention"));
  // Where those gradients are the larger, nothing is added; nor where the library is not taken.
  CHECK(plan(Precision::fp32, AttentionLibrary::cudnn).bytes("attention") == 0);
  model.dropout = 0.1;
  CHECK(plan(Precision::bf16, AttentionLibrary::cudnn).bytes("attention") == 0);
  model.dropout = 0.0;
  model.ffn = 1 << 16;
  CHECK(plan(Precision::bf16, AttentionLibrary::cudnn).bytes("attention") == 0);
}

TEST_CASE("E13: accumulating more micro-batches keeps no more activations") {
  for (const ModelConfig& model : small_models()) {
    MemoryPlan const one = memory_plan(model, Layout{}, 2, 1, Precision::fp32, Recompute::none, 0);
    MemoryPlan const many =
        memory_plan(model, Layout{}, 2, 64, Precision::fp32, Recompute::none, 0);
    CHECK(one.total() == many.total());
  }
}

}  // namespace copus
