#include "backend/cuda/cudnn/attention_graphs.h"

#include <limits>

namespace copus::cudnn {
namespace {

constexpr cudnnDataType_t kHalf = CUDNN_DATA_BFLOAT16, kFloat = CUDNN_DATA_FLOAT;

// (B, H, T, 1), of row statistics; (B, H, T, T), of scores.
Shape rows_of(const Shape& q) {
  return packed(q.size[0], q.size[1], q.size[2], 1);
}
Shape scores_of(const Shape& q) {
  return packed(q.size[0], q.size[1], q.size[2], q.size[2]);
}

// A query sees at least itself, so that no row is masked as a whole.
constexpr float kMasked = std::numeric_limits<float>::lowest();

}  // namespace

ForwardGraph::ForwardGraph(const AttentionShapes& s) {
  q = graph.tensor(s.q, kHalf);
  k = graph.tensor(s.k.transposed(), kHalf);
  v = graph.tensor(s.v, kHalf);
  out = graph.tensor(s.out, kHalf);
  lse = graph.tensor(rows_of(s.q), kFloat);
  Ref const scale = graph.scalar(s.scale), masked = graph.scalar(kMasked);
  Ref const products = graph.matmul(scores_of(s.q), q, k);
  Ref const scores =
      graph.lower_triangle(graph.pointwise(CUDNN_POINTWISE_MUL, products, scale), masked);
  Ref const most = graph.reduce_rows(CUDNN_REDUCE_TENSOR_MAX, scores);
  Ref const exponentials =
      graph.pointwise(CUDNN_POINTWISE_EXP, graph.pointwise(CUDNN_POINTWISE_SUB, scores, most));
  Ref const sum = graph.reduce_rows(CUDNN_REDUCE_TENSOR_ADD, exponentials);
  Ref const log = graph.pointwise(CUDNN_POINTWISE_LOG, sum);
  graph.pointwise_into(lse, CUDNN_POINTWISE_ADD, most, log);
  Ref const probabilities = graph.pointwise(CUDNN_POINTWISE_DIV, exponentials, sum);
  graph.set_type(probabilities, kHalf);
  graph.matmul_into(out, probabilities, v);
}

// With P = exp(scores - lse) and along = d_out . out: d_v = P^T d_out, dS = P (d_out v^T - along),
// d_k = scale dS^T q, d_q = scale dS k.
BackwardGraph::BackwardGraph(const AttentionShapes& s, const GradientShapes& d) {
  q = graph.tensor(s.q, kHalf);
  k = graph.tensor(s.k.transposed(), kHalf);
  v = graph.tensor(s.v.transposed(), kHalf);
  out = graph.tensor(s.out, kHalf);
  lse = graph.tensor(rows_of(s.q), kFloat);
  d_out = graph.tensor(d.d_out, kHalf);
  d_q = graph.tensor(d.d_q, kHalf);
  d_k = graph.tensor(d.d_k, kHalf);
  d_v = graph.tensor(d.d_v, kHalf);
  along = graph.tensor(rows_of(s.q), kFloat);
  Ref const scale = graph.scalar(s.scale), masked = graph.scalar(kMasked), one = graph.scalar(1.0f);

  auto const [B, H, T, D] = s.q.size;
  Ref const dots = graph.pointwise(CUDNN_POINTWISE_MUL, d_out, out);
  graph.pointwise_into(along, CUDNN_POINTWISE_MUL, graph.reduce_rows(CUDNN_REDUCE_TENSOR_ADD, dots),
                       one);

  Ref const products = graph.matmul(scores_of(s.q), q, k);
  Ref const scores = graph.pointwise(CUDNN_POINTWISE_SUB,
                                     graph.pointwise(CUDNN_POINTWISE_MUL, products, scale), lse);
  Ref const probabilities =
      graph.pointwise(CUDNN_POINTWISE_EXP, graph.lower_triangle(scores, masked));
  Shape const full = packed(B, H, T, D);
  auto const to_key_heads = [&](Ref into, Ref weights, Ref rows, const Shape& keys) {
    Ref const turned = graph.reshape(scores_of(s.q).transposed(), weights);
    graph.set_type(turned, kHalf);
    if (keys.size[1] == H) return graph.matmul_into(into, turned, rows);
    Ref const per_head = graph.matmul(full, turned, rows);
    graph.set_type(per_head, kHalf);
    graph.reduce_into(into, CUDNN_REDUCE_TENSOR_ADD, per_head);
  };
  to_key_heads(d_v, probabilities, d_out, s.v);

  Ref const d_p =
      graph.pointwise(CUDNN_POINTWISE_SUB, graph.matmul(scores_of(s.q), d_out, v), along);
  Ref const d_s = graph.pointwise(CUDNN_POINTWISE_MUL,
                                  graph.pointwise(CUDNN_POINTWISE_MUL, d_p, probabilities), scale);
  to_key_heads(d_k, d_s, q, s.k);
  // The keys once more, as rows.
  graph.matmul_into(d_q, d_s, graph.reshape(s.k, k));
}

}  // namespace copus::cudnn
