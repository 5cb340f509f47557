#include "copus/plan/cost.h"

#include <algorithm>

#include "copus/core/error.h"
#include "copus/parallel/flops.h"
#include "copus/parallel/params.h"
#include "plan/layer_cost.h"
#include "plan/links.h"

namespace copus {
namespace {

using detail::LayerCosts;
using detail::Pass;

AttentionKernel attention_kernel(const std::string& word) {
  if (word == "flash1") return AttentionKernel::flash1;
  if (word == "fused") return AttentionKernel::fused;
  if (word == "unfused") return AttentionKernel::unfused;
  COPUS_CHECK(word == "flash", "the configuration checks this word");
  return AttentionKernel::flash;
}

// Forward and backward of every chunk, by place in the model.
struct Chunks {
  std::vector<Pass> forward, backward;
  PipelineTimes times;
};

Chunks chunks_of(const ModelConfig& model, const StepShape& shape, const LayerCosts& layers,
                 double message) {
  const Layout& layout = shape.layout;
  int const count = layout.pp * layout.virtual_stages;
  Chunks chunks;
  chunks.times.message = message;
  for (int place = 0; place < count; ++place) {
    LayerRange const range = layers_of(model.layers, layout, place % layout.pp, place / layout.pp);
    auto const blocks = static_cast<double>(range.end - range.begin);
    Pass forward{blocks * layers.block.forward.compute, blocks * layers.block.forward.tensor};
    Pass backward{blocks * layers.block.backward.compute, blocks * layers.block.backward.tensor};
    if (place == 0) {
      forward += layers.embedding.forward;
      backward += layers.embedding.backward;
    }
    if (place == count - 1) {
      forward += layers.head.forward;
      backward += layers.head.backward;
    }
    chunks.times.forward.push_back(forward.seconds());
    chunks.times.backward.push_back(backward.seconds());
    chunks.forward.push_back(forward);
    chunks.backward.push_back(backward);
  }
  return chunks;
}

// What follows the last micro-batch, on the stage where it takes longest.
struct StepEnd {
  double reduce = 0.0, gather = 0.0, optimizer = 0.0;
  double seconds() const { return reduce + gather + optimizer; }
};

StepEnd end_of(const Layout& layout, const StageElements& flat, double buckets, Precision precision,
               const Cluster& cluster, double backward, double forward) {
  const Hardware& hw = cluster.hardware;
  auto const state = static_cast<double>(flat.state_numel);
  double const weight_bytes = precision == Precision::bf16 ? 2.0 : 4.0;
  bool const cut = layout.zero > 0 && layout.dp > 1;
  detail::Group const group = detail::data_group(layout, cluster);
  // Gradients are summed in fp32, one bucket after another. Traffic hides under the last
  // micro-batch's backward and, the weights' coming back, under the first one's forward, as far as
  // the machine can overlap at all.
  auto const gather_all = [&](double bytes) {
    return buckets * detail::gather_seconds(group, bytes / buckets, cluster);
  };
  double const reduce = (cut ? 1.0 : 2.0) * gather_all(4.0 * state);
  double const gather = cut ? gather_all(weight_bytes * state) : 0.0;
  StepEnd end;
  double const overlap = cut ? hw.overlap_zero : hw.overlap;
  end.reduce = reduce - std::min(overlap * reduce, backward);
  end.gather = gather - std::min(overlap * gather, forward);
  // AdamW reads gradient, master and both moments and writes all but the first, and the compute
  // weights where they are another type; before it the norm reads the gradient, after it the next
  // step zeroes it.
  double const owned = cut ? state / layout.dp : state;
  double const update = 28.0 + (precision == Precision::bf16 ? 2.0 : 0.0);
  end.optimizer = (owned * update + 8.0 * state) / hw.memory_bytes_per_second;
  return end;
}

// How much faster a stage runs while others idle: they lend it processors of its own node, so as
// many stages as a node holds count (ranks of a stage are neighbours).
double lent_rate(const Layout& layout, const Cluster& cluster) {
  double const stages =
      static_cast<double>(cluster.gpus_per_node) / static_cast<double>(layout.tp * layout.dp);
  return std::clamp(cluster.hardware.alone, 1.0, std::max(1.0, stages));
}

}  // namespace

Cluster cluster_of(const ClusterConfig& config, Hardware hardware) {
  Cluster cluster;
  if (hardware.between.bytes_per_second <= 0.0) {
    hardware.between.bytes_per_second = config.internode_gbps_per_gpu * 1e9 / 8.0;
  }
  cluster.hardware = std::move(hardware);
  cluster.nodes = config.nodes;
  cluster.gpus_per_node = config.gpus_per_node;
  cluster.attention = attention_kernel(config.attention_kernel);
  cluster.norm = config.norm_kernel == "plain" ? NormKernel::plain : NormKernel::fused;
  return cluster;
}

std::vector<StageElements> stage_sizes(const ModelConfig& model, const Layout& layout) {
  std::vector<StageElements> sizes;
  for (int pp_rank = 0; pp_rank < layout.pp; ++pp_rank) {
    sizes.push_back(stage_elements(model, layout, pp_rank));
  }
  return sizes;
}

StepCost step_cost(const ModelConfig& model, const StepShape& shape, std::int64_t micro_batches,
                   Precision precision, const Cluster& cluster,
                   const std::vector<StageElements>& sizes) {
  const Layout& layout = shape.layout;
  double const size = precision == Precision::bf16 ? 2.0 : 4.0;
  // Each of the tp ranks sends its part of the rows (Narayanan et al. 2021, section 4.1).
  double const rows = static_cast<double>(shape.micro * model.seq_len) / layout.tp;
  double const message =
      detail::message_seconds(layout, size * rows * static_cast<double>(model.hidden), cluster);
  Chunks const chunks =
      chunks_of(model, shape, detail::layer_costs(model, shape, precision, cluster), message);
  PipelineCost const line =
      pipeline_cost(layout, chunks.times, micro_batches, lent_rate(layout, cluster),
                    cluster.hardware.overlap_messages);

  StepCost cost;
  StepEnd end;
  Pass pace;
  for (int stage = 0; stage < layout.pp; ++stage) {
    Pass forward, backward;
    double buckets = 1.0;  // one a layer, one for what lies outside the blocks
    for (int chunk = 0; chunk < layout.virtual_stages; ++chunk) {
      auto const place = static_cast<std::size_t>(chunk * layout.pp + stage);
      forward += chunks.forward[place];
      backward += chunks.backward[place];
      LayerRange const range = layers_of(model.layers, layout, stage, chunk);
      buckets += static_cast<double>(range.end - range.begin);
    }
    StepEnd const candidate = end_of(layout, sizes[static_cast<std::size_t>(stage)], buckets,
                                     precision, cluster, backward.seconds(), forward.seconds());
    if (candidate.seconds() > end.seconds()) end = candidate;
    if (stage == line.stage) {
      pace = forward;
      pace += backward;
    }
  }
  cost.beta = line.beta;
  cost.bubble = line.alpha;
  cost.reduce = end.reduce;
  cost.gather = end.gather;
  cost.optimizer = end.optimizer;
  if (model.tie_embeddings && layout.pp > 1) {
    // The last stage's part of the gradient goes to the first, the new weight returns.
    double const tied = static_cast<double>(padded_vocab(model, layout) / layout.tp * model.hidden);
    cost.reduce += detail::message_seconds(layout, 4.0 * tied, cluster);
    cost.gather += detail::message_seconds(layout, size * tied, cluster);
  }
  cost.alpha = cost.bubble + cost.reduce + cost.gather + cost.optimizer;
  cost.messages = cost.beta - line.busy;
  // Of a short step, or of ranks that share processors, beta is not the whole of a pace.
  double const part = line.busy / pace.seconds();
  cost.tensor = part * pace.tensor;
  cost.compute = part * pace.compute;
  return cost;
}

double mfu_of(const ModelConfig& model, double tokens_per_second, std::int64_t ranks,
              double peak_flops) {
  return flops_per_token(model) * tokens_per_second / (peak_flops * static_cast<double>(ranks));
}

}  // namespace copus
