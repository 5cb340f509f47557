// Attention forward and backward as graphs of cuDNN's operations, in the form that its fused
// kernels know.
#pragma once
#include "backend/cuda/cudnn/graph.h"

namespace copus::cudnn {

// Queries (B, H, T, D), keys and values (B, K, T, D), and what is shaped like them.
struct AttentionShapes {
  Shape q, k, v, out;
  float scale = 1.0f;
};
struct GradientShapes {
  Shape d_q, d_k, d_v, d_out;
};

struct ForwardGraph {
  Graph graph;
  Ref q, k, v, out, lse;
  explicit ForwardGraph(const AttentionShapes& shapes);
};

struct BackwardGraph {
  Graph graph;
  Ref q, k, v, out, lse, d_out, d_q, d_k, d_v;
  Ref along;  // (B, H, T) f32, the graph's own between its kernels: d_out . out
  BackwardGraph(const AttentionShapes& shapes, const GradientShapes& gradients);
};

}  // namespace copus::cudnn
