#include "plan/layer_cost.h"

#include <algorithm>

#include "copus/parallel/params.h"
#include "plan/links.h"
namespace copus::detail {
namespace {

// Passes over memory that kernels make, in elements read and written for each element of the
// tensor: counted where the kernel says it, fitted to whole steps where a framework hides it
// (docs/planner.md).
constexpr double kNormFused = 3.0;       // read, write; statistics in the same sweep
constexpr double kNormPlain = 35.0;      // upcast, square, mean, scale, downcast in a kernel each
constexpr double kResidual = 3.0;        // two reads, one write
constexpr double kRope = 2.0;            // q and k in place
constexpr double kActivation = 3.0;      // gate and up read, product written
constexpr double kBackwardPasses = 2.5;  // of a forward pass: its input and a gradient are read

// What an attention kernel touches beyond q, k, v and its output: bytes a score. flash keeps scores
// on the chip; fused writes them and softmaxes in one kernel; unfused scales, masks and softmaxes
// in a kernel each, with a copy in fp32.
struct ScoreBytes {
  double forward = 0.0, backward = 0.0;
};
ScoreBytes score_bytes(AttentionKernel kernel) {
  switch (kernel) {
    case AttentionKernel::fused:
      return {10.0, 13.0};
    case AttentionKernel::unfused:
      return {30.0, 25.0};
    default:
      return {};
  }
}
// The first flash attention against the second, at the same shapes (Dao 2023, arXiv 2307.08691).
constexpr double kFlash1Rate = 0.6;

class Rank {
 public:
  Rank(const ModelConfig& model, const StepShape& shape, Precision precision,
       const Cluster& cluster)
      : m_(model),
        shape_(shape),
        cluster_(cluster),
        hw_(cluster.hardware),
        rate_(hw_.matrix(precision)),
        size_(precision == Precision::bf16 ? 2.0 : 4.0),
        tp_(shape.layout.tp),
        rows_(static_cast<double>(shape.micro * model.seq_len)),
        cut_rows_(shape.layout.sequence_parallel ? rows_ / tp_ : rows_),
        width_(static_cast<double>(model.hidden)) {}

  LayerCosts costs() const { return {block(), embedding(), head()}; }

 private:
  double matmul(double rows, double cols, double depth, double out_size) const {
    auto const share = [this](double x) { return x / (x + hw_.half_size); };
    double const rate =
        rate_.peak_flops * rate_.efficiency * share(rows) * share(cols) * share(depth);
    double const bytes = size_ * (rows * depth + depth * cols) + out_size * rows * cols;
    return std::max(2.0 * rows * cols * depth / rate, bytes / hw_.memory_bytes_per_second) +
           hw_.launch_seconds;
  }
  // y = x W and, going back, both gradients; the weight's is added to an fp32 sum.
  Passes product(double rows, double cols, double depth) const {
    Passes out;
    out.forward.compute = matmul(rows, cols, depth, size_);
    out.backward.compute = matmul(rows, depth, cols, size_) + matmul(cols, depth, rows, 8.0);
    return out;
  }
  double stream(double elements) const {
    return elements * size_ / hw_.memory_bytes_per_second + hw_.launch_seconds;
  }
  Passes elementwise(double elements) const {
    Passes out;
    out.forward.compute = stream(elements);
    out.backward.compute = stream(kBackwardPasses * elements);
    return out;
  }
  // One all-reduce of the residual stream, or the gather and scatter that stand for it.
  double collective() const {
    return all_reduce_seconds(tensor_group(shape_.layout, cluster_), size_ * rows_ * width_,
                              cluster_);
  }

  Passes attention() const {
    double const t = static_cast<double>(m_.seq_len);
    double const heads = static_cast<double>(m_.heads) / tp_;
    double const scores = static_cast<double>(shape_.micro) * heads * t * t;
    double const d = static_cast<double>(m_.head_dim());
    bool const flash = cluster_.attention == AttentionKernel::flash ||
                       cluster_.attention == AttentionKernel::flash1;
    Passes out;
    if (flash) {
      // Two products forward; five backward, which makes the scores again. Half is masked away.
      double const factor = cluster_.attention == AttentionKernel::flash ? 1.0 : kFlash1Rate;
      double const work = 2.0 * scores * d * 0.5 / (rate_.peak_flops * factor);
      out.forward.compute = 2.0 * work / hw_.attention_forward + hw_.launch_seconds;
      out.backward.compute = 5.0 * work / hw_.attention_backward + hw_.launch_seconds;
      return out;
    }
    // Batched products over all scores, and passes over the scores in memory.
    double const share = d / (d + hw_.half_size) * t / (t + hw_.half_size);
    double const work = 2.0 * scores * d / (rate_.peak_flops * rate_.efficiency * share);
    ScoreBytes const bytes = score_bytes(cluster_.attention);
    out.forward.compute =
        2.0 * work + scores * bytes.forward / hw_.memory_bytes_per_second + 4 * hw_.launch_seconds;
    out.backward.compute =
        4.0 * work + scores * bytes.backward / hw_.memory_bytes_per_second + 8 * hw_.launch_seconds;
    return out;
  }

  Passes block() const {
    Passes sum;
    auto const add = [&sum](const Passes& part) {
      sum.forward += part.forward;
      sum.backward += part.backward;
    };
    double const q = width_ / tp_, ffn = static_cast<double>(m_.ffn) / tp_;
    double const kv =
        std::max(1.0, static_cast<double>(m_.kv_heads) / tp_) * static_cast<double>(m_.head_dim());
    double const up = m_.is_gpt2() ? ffn : 2.0 * ffn;
    double const norm = cluster_.norm == NormKernel::fused ? kNormFused : kNormPlain;
    add(product(rows_, q + 2.0 * kv, width_));
    Passes const core = attention();
    add(core);
    add(product(rows_, width_, q));
    add(product(rows_, up, width_));
    add(product(rows_, width_, ffn));
    add(elementwise(2.0 * norm * cut_rows_ * width_));
    add(elementwise(2.0 * kResidual * cut_rows_ * width_));
    add(elementwise((m_.is_gpt2() ? 0.0 : kRope * (q + kv)) * rows_));
    add(elementwise(kActivation / 2.0 * up * rows_));
    if (shape_.layout.tp > 1) {
      sum.forward.tensor = 2.0 * collective();
      sum.backward.tensor = 2.0 * collective();
    }
    if (shape_.recompute == Recompute::selective) sum.backward += core.forward;
    wait_for_host(sum.forward, 1.0);
    wait_for_host(sum.backward, 2.0);
    if (shape_.recompute == Recompute::full) sum.backward += sum.forward;
    return sum;
  }

  // The device idles where the host needs longer to issue a pass than the device to run it.
  void wait_for_host(Pass& pass, double passes) const {
    pass.compute += std::max(0.0, passes * hw_.layer_seconds - pass.seconds());
  }

  Passes embedding() const {
    Passes out = elementwise(2.0 * cut_rows_ * width_);
    if (shape_.layout.tp > 1) out.forward.tensor = collective();
    return out;
  }

  Passes head() const {
    double const vocab = static_cast<double>(padded_vocab(m_, shape_.layout)) / tp_;
    Passes out = product(rows_, vocab, width_);
    Passes const norm = elementwise(kNormFused * cut_rows_ * width_);
    out.forward += norm.forward;
    out.backward += norm.backward;
    // fp32 logits: written, read for the softmax, read and overwritten by their gradient.
    out.forward.compute += 8.0 * rows_ * vocab / hw_.memory_bytes_per_second;
    out.backward.compute += 8.0 * rows_ * vocab / hw_.memory_bytes_per_second;
    if (shape_.layout.tp > 1) out.backward.tensor = collective();
    return out;
  }

  const ModelConfig& m_;
  const StepShape& shape_;
  const Cluster& cluster_;
  const Hardware& hw_;
  MatrixRate rate_;
  double size_;  // bytes of an element in the compute type
  double tp_, rows_, cut_rows_, width_;
};

}  // namespace

LayerCosts layer_costs(const ModelConfig& model, const StepShape& shape, Precision precision,
                       const Cluster& cluster) {
  return Rank(model, shape, precision, cluster).costs();
}

}  // namespace copus::detail
