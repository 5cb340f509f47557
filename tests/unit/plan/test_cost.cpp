#include <catch2/catch.hpp>
#include <cmath>

#include "copus/parallel/flops.h"
#include "copus/parallel/params.h"
#include "copus/plan/cost.h"

namespace copus {
namespace {

ModelConfig llama() {
  ModelConfig model;
  model.family = Family::llama;
  model.layers = 6;
  model.hidden = 256;
  model.heads = 8;
  model.kv_heads = 4;
  model.ffn = 768;
  model.vocab = 1024;
  model.seq_len = model.max_positions = 128;
  return model;
}

// Nothing costs time but floating-point operations, at 1 TFLOP/s.
Hardware only_flops() {
  Hardware hw;
  hw.fp32 = hw.bf16 = {1e12, 1.0};
  hw.attention_forward = hw.attention_backward = 1.0;
  hw.memory_bytes_per_second = 1e30;
  hw.memory_bytes = std::int64_t{1} << 40;
  hw.inside = {0.0, 1e30};
  hw.between = {0.0, 1e30};
  return hw;
}

Cluster cluster_with(const Hardware& hw, std::int64_t nodes = 1, std::int64_t per_node = 8) {
  Cluster cluster;
  cluster.hardware = hw;
  cluster.nodes = nodes;
  cluster.gpus_per_node = per_node;
  return cluster;
}

StepCost cost_of(const ModelConfig& model, const StepShape& shape, const Cluster& cluster,
                 std::int64_t m = 8, Precision precision = Precision::fp32) {
  return step_cost(model, shape, m, precision, cluster, stage_sizes(model, shape.layout));
}

// One micro-batch of `micro` sequences, by hand: 2 FLOPs a weight and token forward and 4 backward;
// flash attention skips the masked half and makes the scores again in backward (5 products to 2).
double flops_of(const ModelConfig& model, std::int64_t micro) {
  double const tokens = static_cast<double>(micro * model.seq_len);
  double const score_product = 2.0 * tokens * static_cast<double>(model.seq_len * model.hidden) / 2;
  return 6.0 * static_cast<double>(matmul_parameter_count(model)) * tokens +
         static_cast<double>(model.layers) * 7.0 * score_product;
}

constexpr double kRounding = 1e-9;

}  // namespace

TEST_CASE("a machine that only multiplies needs the step's FLOPs over its peak") {
  for (std::int64_t micro : {1, 2, 4}) {
    StepCost const cost =
        cost_of(llama(), {{}, micro, Recompute::none}, cluster_with(only_flops()));
    CHECK(cost.beta == Approx(flops_of(llama(), micro) / 1e12).epsilon(kRounding));
    CHECK(cost.alpha == Approx(0.0).margin(1e-15));
    CHECK(cost.seconds(8) == Approx(8 * cost.beta).epsilon(kRounding));
  }
  ModelConfig gpt2 = llama();
  gpt2.family = Family::gpt2;
  gpt2.kv_heads = gpt2.heads;
  gpt2.tie_embeddings = true;
  StepCost const cost = cost_of(gpt2, {{}, 2, Recompute::none}, cluster_with(only_flops()));
  CHECK(cost.beta == Approx(flops_of(gpt2, 2) / 1e12).epsilon(kRounding));
}

TEST_CASE("tensor parallelism divides the work of such a machine by tp") {
  ModelConfig const model = llama();
  for (int tp : {2, 4}) {
    Layout layout;
    layout.tp = tp;
    StepCost const cost = cost_of(model, {layout, 2, Recompute::none}, cluster_with(only_flops()));
    CHECK(cost.beta == Approx(flops_of(model, 2) / 1e12 / tp).epsilon(kRounding));
  }
}

TEST_CASE("recompute adds a forward of the blocks, and selective only attention's") {
  ModelConfig const model = llama();
  Cluster const cluster = cluster_with(only_flops());
  auto const beta = [&](Recompute recompute) {
    return cost_of(model, {{}, 2, recompute}, cluster).beta;
  };
  double const tokens = 2.0 * 128, head = 1024.0 * 256;
  double const scores = 6 * 2 * 2.0 * tokens * 128 * 256 / 2;  // layers, products
  double const forward =
      2.0 * (static_cast<double>(matmul_parameter_count(model)) - head) * tokens + scores;
  CHECK(beta(Recompute::full) - beta(Recompute::none) == Approx(forward / 1e12).epsilon(kRounding));
  CHECK(beta(Recompute::selective) - beta(Recompute::none) ==
        Approx(scores / 1e12).epsilon(kRounding));
}

TEST_CASE("the dp reduction is a ring over the slowest link: twice the shard, half under ZeRO") {
  ModelConfig const model = llama();
  Hardware hw = only_flops();
  hw.inside.bytes_per_second = 10e9;
  hw.between.bytes_per_second = 1e9;
  auto const parameters = static_cast<double>(parameter_count(model));
  auto const cost = [&](int dp, int zero, std::int64_t nodes, std::int64_t per_node,
                        Precision precision = Precision::fp32) {
    Layout layout;
    layout.dp = dp;
    layout.zero = zero;
    return cost_of(model, {layout, 1, Recompute::none}, cluster_with(hw, nodes, per_node), 4,
                   precision);
  };
  StepCost const inside = cost(8, 0, 1, 8);
  // dp pads each of the 8 buckets by at most 7 elements.
  double const padding = 1e-3;
  CHECK(inside.reduce == Approx(2 * 7.0 / 8 * 4 * parameters / 10e9).epsilon(padding));
  CHECK(inside.gather == 0.0);
  StepCost const zero = cost(8, 1, 1, 8, Precision::bf16);
  CHECK(zero.reduce == Approx(inside.reduce / 2).epsilon(kRounding));
  CHECK(zero.gather == Approx(inside.reduce / 4).epsilon(kRounding));  // bf16 weights
  CHECK(cost(1, 1, 1, 8).reduce == 0.0);
  // Two nodes of two: each rank brings its 1 GB/s, the ring runs at both together.
  CHECK(cost(4, 0, 2, 2).reduce == Approx(2 * 3.0 / 4 * 4 * parameters / 2e9).epsilon(padding));
  // Four nodes of one: at one.
  CHECK(cost(4, 0, 4, 1).reduce == Approx(2 * 3.0 / 4 * 4 * parameters / 1e9).epsilon(padding));
}

TEST_CASE("what the machine can overlap is not exposed, but no more than the backward takes") {
  ModelConfig const model = llama();
  Hardware hw = only_flops();
  hw.inside.bytes_per_second = 1e12;
  Layout layout;
  layout.dp = 4;
  auto const reduce = [&](double overlap) {
    hw.overlap = overlap;
    return cost_of(model, {layout, 4, Recompute::none}, cluster_with(hw)).reduce;
  };
  double const all = reduce(0.0);
  CHECK(reduce(0.5) == Approx(all / 2).epsilon(kRounding));
  CHECK(reduce(1.0) == Approx(0.0).margin(all * 1e-9));
  hw.inside.bytes_per_second = 1e6;  // now far longer than any backward
  double const slow = reduce(0.0);
  StepCost const cost = cost_of(model, {layout, 4, Recompute::none}, cluster_with(hw));
  CHECK(slow - reduce(1.0) < cost.beta);
  CHECK(slow - reduce(1.0) > cost.beta / 2);
}

TEST_CASE("tp across nodes is legal and priced by the link between them") {
  ModelConfig const model = llama();
  Hardware hw = only_flops();
  hw.inside.bytes_per_second = 100e9;
  hw.between.bytes_per_second = 1e9;
  Layout layout;
  layout.tp = 4;
  StepShape const shape{layout, 2, Recompute::none};
  double const inside = cost_of(model, shape, cluster_with(hw, 1, 4)).tensor;
  double const across = cost_of(model, shape, cluster_with(hw, 4, 1)).tensor;
  CHECK(across == Approx(100 * inside).epsilon(kRounding));
  // Four all-reduces a layer, one for the embedding, one for the head; of 2 x 128 x 256 floats.
  double const one = 2 * 3.0 / 4 * 2 * 128 * 256 * 4 / 100e9;
  CHECK(inside == Approx((6 * 4 + 2) * one).epsilon(kRounding));
}

TEST_CASE("AdamW streams 28 bytes a parameter, ZeRO's share of them, and the gradient twice") {
  ModelConfig const model = llama();
  Hardware hw = only_flops();
  hw.memory_bytes_per_second = 1e12;
  auto const parameters = static_cast<double>(parameter_count(model));
  Layout layout;
  layout.dp = 4;
  auto const optimizer = [&](int zero, Precision precision) {
    layout.zero = zero;
    return cost_of(model, {layout, 1, Recompute::none}, cluster_with(hw), 4, precision).optimizer;
  };
  double const padding = 1e-3;
  CHECK(optimizer(0, Precision::fp32) == Approx(36 * parameters / 1e12).epsilon(padding));
  CHECK(optimizer(0, Precision::bf16) == Approx(38 * parameters / 1e12).epsilon(padding));
  CHECK(optimizer(1, Precision::fp32) == Approx((7 + 8) * parameters / 1e12).epsilon(padding));
}

TEST_CASE("short dimensions run at the share that half_size says, launches add up") {
  ModelConfig const model = llama();
  Hardware hw = only_flops();
  hw.half_size = 128;
  Cluster const cluster = cluster_with(hw);
  CHECK(cost_of(model, {{}, 1, Recompute::none}, cluster).beta >
        2 * flops_of(model, 1) / 1e12);  // 128 rows alone halve it
  double const small = cost_of(model, {{}, 1, Recompute::none}, cluster).beta;
  double const large = cost_of(model, {{}, 8, Recompute::none}, cluster).beta;
  CHECK(large < 8 * small);  // longer micro-batches are more efficient
  hw.half_size = 0;
  hw.layer_seconds = 1.0;  // the host decides: 1 s forward and 2 back, a layer
  CHECK(cost_of(model, {{}, 1, Recompute::none}, cluster_with(hw)).beta ==
        Approx(6 * 3.0).epsilon(1e-2));
}

TEST_CASE("the parts of a cost add up to it") {
  ModelConfig const model = llama();
  Cluster const cluster = cluster_with(hardware_preset("a100-sxm-80gb"), 4, 2);
  for (int pp : {1, 2, 3}) {
    for (int tp : {1, 2}) {
      for (int zero : {0, 1}) {
        Layout const layout{2, tp, pp, 1, zero, false};
        StepCost const cost =
            cost_of(model, {layout, 2, Recompute::none}, cluster, 8, Precision::bf16);
        CHECK(cost.alpha == Approx(cost.bubble + cost.reduce + cost.gather + cost.optimizer));
        CHECK(cost.beta == Approx(cost.compute + cost.tensor + cost.messages));
        CHECK(cost.messages >= 0.0);
        CHECK((cost.messages > 0.0) == (pp > 1));
        CHECK((cost.bubble > 0.0) == (pp > 1));
        CHECK((cost.tensor > 0.0) == (tp > 1));
      }
    }
  }
}

TEST_CASE("an idle stage lends its processors to the stages of its node, and to no others") {
  ModelConfig const model = llama();
  Hardware shared = only_flops();
  shared.alone = 2.0;
  StepShape const shape{{2, 1, 2, 1}, 1, Recompute::none};
  auto const bubble = [&](const Hardware& hw, std::int64_t nodes, std::int64_t per_node) {
    return cost_of(model, shape, cluster_with(hw, nodes, per_node)).seconds(1);
  };
  double const full = bubble(only_flops(), 1, 4);
  CHECK(bubble(only_flops(), 2, 2) == Approx(full));
  // Both ranks of a stage in a node of their own: when they wait, nobody is there to work.
  CHECK(bubble(shared, 2, 2) == Approx(full));
  // One micro-batch keeps one stage of two busy.
  CHECK(bubble(shared, 1, 4) == Approx(full / 2));
}

TEST_CASE("unfused attention and plain norms cost more than their better kernels") {
  ModelConfig const model = llama();
  Cluster cluster = cluster_with(hardware_preset("a100-sxm-80gb"));
  cluster.hardware.layer_seconds = 0.0;
  StepShape const shape{{}, 8, Recompute::none};
  auto const beta = [&](AttentionKernel attention, NormKernel norm) {
    cluster.attention = attention;
    cluster.norm = norm;
    return cost_of(model, shape, cluster, 8, Precision::bf16).beta;
  };
  double const best = beta(AttentionKernel::flash, NormKernel::fused);
  CHECK(beta(AttentionKernel::flash1, NormKernel::fused) > best);
  CHECK(beta(AttentionKernel::fused, NormKernel::fused) > best);
  CHECK(beta(AttentionKernel::unfused, NormKernel::fused) >
        beta(AttentionKernel::fused, NormKernel::fused));
  CHECK(beta(AttentionKernel::flash, NormKernel::plain) > best);
}

TEST_CASE("E26: MFU is the contract's FLOPs over the ranks' peak, recompute not counted") {
  ModelConfig const model = llama();
  // Layer: q 256x256, k and v 128x256, out 256x256, three of 768x256; head 1024x256.
  double const n = 6.0 * (256 * 256 * 2 + 2 * 128 * 256 + 3 * 768 * 256) + 1024 * 256;
  double const flops = 6 * n + 12.0 * 6 * 256 * 128;
  CHECK(mfu_of(model, 1000.0, 4, 1e12) == Approx(flops * 1000.0 / 4e12).epsilon(kRounding));
}

TEST_CASE("a cluster takes its link between nodes from the file unless the hardware measured it") {
  ClusterConfig config;
  config.internode_gbps_per_gpu = 200.0;
  config.attention_kernel = "flash1";
  config.norm_kernel = "plain";
  config.nodes = 3;
  config.gpus_per_node = 4;
  Cluster const listed = cluster_of(config, hardware_preset("h100-sxm"));
  CHECK(listed.hardware.between.bytes_per_second == 25e9);
  CHECK(listed.world() == 12);
  CHECK(listed.attention == AttentionKernel::flash1);
  CHECK(listed.norm == NormKernel::plain);
  Hardware measured = hardware_preset("h100-sxm");
  measured.between.bytes_per_second = 7e9;
  CHECK(cluster_of(config, measured).hardware.between.bytes_per_second == 7e9);
}

}  // namespace copus
