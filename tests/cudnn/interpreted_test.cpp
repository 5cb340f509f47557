// What our graphs compute, by an interpreter of cuDNN's operations in double: attention and its
// gradients, whatever kernel runs them.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "backend/cuda/cudnn/attention_graphs.h"
#include "support/attention_reference.h"

using namespace copus;
using namespace copus::cudnn;

namespace {

using Index = std::array<std::int64_t, 4>;

template <class Body>
void for_each(const Index& size, const Body& body) {
  Index i;
  for (i[0] = 0; i[0] < size[0]; ++i[0])
    for (i[1] = 0; i[1] < size[1]; ++i[1])
      for (i[2] = 0; i[2] < size[2]; ++i[2])
        for (i[3] = 0; i[3] < size[3]; ++i[3]) body(i);
}

std::size_t offset(const Shape& shape, const Index& i) {
  std::int64_t at = 0;
  for (std::size_t d = 0; d < 4; ++d) at += i[d] * shape.stride[d];
  return static_cast<std::size_t>(at);
}

// Where an element of a larger tensor finds its partner in a smaller one: dimensions of one are
// spread, groups of heads share.
Index partner(const Index& i, const Index& large, const Index& small) {
  Index j;
  for (std::size_t d = 0; d < 4; ++d) j[d] = i[d] * small[d] / large[d];
  return j;
}

class Interpreter {
 public:
  explicit Interpreter(const Graph& graph) : graph_(graph) {
    for (const GraphTensor& tensor : graph.tensors()) {
      Index last = tensor.shape.size;
      for (std::int64_t& n : last) --n;
      memory_.emplace_back(offset(tensor.shape, last) + 1,
                           static_cast<double>(tensor.by_value ? tensor.value : 0.0f));
    }
  }
  std::vector<double>& memory(Ref ref) { return memory_[ref]; }
  void run() {
    for (const GraphOperation& operation : graph_.operations()) run(operation);
  }

 private:
  const Shape& shape(Ref ref) const { return graph_.tensors()[ref].shape; }
  double get(Ref ref, const Index& i) const { return memory_[ref][offset(shape(ref), i)]; }
  double partner_of(Ref ref, const Index& i, Ref of) const {
    return get(ref, partner(i, shape(of).size, shape(ref).size));
  }
  void set(Ref ref, const Index& i, double x) { memory_[ref][offset(shape(ref), i)] = x; }

  double pointwise(const GraphOperation& o, const Index& i) const {
    double const a = o.a == kNone ? 0.0 : partner_of(o.a, i, o.out);
    double const b = o.b == kNone ? 0.0 : partner_of(o.b, i, o.out);
    switch (o.pointwise) {
      case CUDNN_POINTWISE_MUL:
        return a * b;
      case CUDNN_POINTWISE_SUB:
        return a - b;
      case CUDNN_POINTWISE_ADD:
        return a + b;
      case CUDNN_POINTWISE_DIV:
        return a / b;
      case CUDNN_POINTWISE_EXP:
        return std::exp(a);
      case CUDNN_POINTWISE_LOG:
        return std::log(a);
      case CUDNN_POINTWISE_GEN_INDEX:
        return static_cast<double>(i[static_cast<std::size_t>(o.axis)]);
      case CUDNN_POINTWISE_CMP_GE:
        return a >= b ? 1.0 : 0.0;
      case CUDNN_POINTWISE_BINARY_SELECT:
        return get(o.choice, i) != 0.0 ? a : b;
      default:
        FAIL("an operation that the interpreter does not know: " << o.pointwise);
        return 0.0;
    }
  }
  void reduce(const GraphOperation& o) {
    bool const most = o.reduction == CUDNN_REDUCE_TENSOR_MAX;
    std::fill(memory_[o.out].begin(), memory_[o.out].end(), most ? -INFINITY : 0.0);
    for_each(shape(o.a).size, [&](const Index& i) {
      Index const j = partner(i, shape(o.a).size, shape(o.out).size);
      double const x = get(o.a, i), before = get(o.out, j);
      set(o.out, j, most ? std::max(before, x) : before + x);
    });
  }
  void multiply(const GraphOperation& o) {
    for_each(shape(o.out).size, [&](const Index& i) {
      double sum = 0.0;
      std::int64_t const heads = shape(o.out).size[1];
      auto const head = [&](Ref ref) { return i[1] * shape(ref).size[1] / heads; };
      for (std::int64_t n = 0; n < shape(o.a).size[3]; ++n)
        sum += get(o.a, {i[0], head(o.a), i[2], n}) * get(o.b, {i[0], head(o.b), n, i[3]});
      set(o.out, i, sum);
    });
  }
  void run(const GraphOperation& o) {
    if (o.work == GraphWork::matmul) return multiply(o);
    if (o.work == GraphWork::reduction) return reduce(o);
    if (o.work == GraphWork::reshape) {  // the same memory, seen otherwise
      memory_[o.out] = memory_[o.a];
      return;
    }
    for_each(shape(o.out).size, [&](const Index& i) { set(o.out, i, pointwise(o, i)); });
  }

  const Graph& graph_;
  std::vector<std::vector<double>> memory_;
};

// Rows (B, T, heads, D) as they lie in memory with `stride` from token to token.
Shape rows(const test::AttentionSizes& s, std::int64_t heads, std::int64_t stride) {
  return {{s.B, heads, s.T, s.D}, {s.T * stride, s.D, stride, 1}};
}

std::vector<double> random(std::int64_t n, std::uint64_t seed) {
  std::vector<double> x;
  for (std::int64_t i = 0; i < n; ++i) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    x.push_back(static_cast<double>(seed >> 40) / 8388608.0 - 1.0);
  }
  return x;
}

// Contiguous values to and from where a shape has them.
std::size_t packed_offset(const Shape& shape, const Index& i) {
  return static_cast<std::size_t>(
      ((i[0] * shape.size[2] + i[2]) * shape.size[1] + i[1]) * shape.size[3] + i[3]);
}
void give(std::vector<double>& memory, const Shape& shape, const std::vector<double>& values) {
  for_each(shape.size,
           [&](const Index& i) { memory[offset(shape, i)] = values[packed_offset(shape, i)]; });
}
void compare(const char* what, const std::vector<double>& memory, const Shape& shape,
             const std::vector<double>& want) {
  double worst = 0.0;
  for_each(shape.size, [&](const Index& i) {
    worst = std::max(worst, std::abs(memory[offset(shape, i)] - want[packed_offset(shape, i)]));
  });
  INFO(what);
  CHECK(worst < 1e-12);
}

}  // namespace

TEST_CASE("the graphs for cuDNN are attention and its gradients") {
  for (const test::AttentionSizes& s :
       std::vector<test::AttentionSizes>{{2, 9, 4, 2, 8}, {1, 7, 3, 3, 16}, {2, 5, 6, 1, 8}}) {
    CAPTURE(s.B, s.T, s.H, s.K, s.D);
    std::int64_t const stride = (s.H + 2 * s.K) * s.D, queries = s.B * s.T * s.H * s.D,
                       keys = s.B * s.T * s.K * s.D;
    Shape const q = rows(s, s.H, stride), kv = rows(s, s.K, stride), o = rows(s, s.H, s.H * s.D);
    AttentionShapes const shapes{q, kv, kv, o, 0.25f};
    std::vector<double> const q_in = random(queries, 1), k_in = random(keys, 2),
                              v_in = random(keys, 3), d_in = random(queries, 4);
    std::vector<double> const none(q_in.size());
    test::AttentionReference const first =
        test::attention_reference(s, 0.25, q_in, k_in, v_in, d_in, none);
    test::AttentionReference const want =
        test::attention_reference(s, 0.25, q_in, k_in, v_in, d_in, first.out.value);

    ForwardGraph const forward(shapes);
    Interpreter f(forward.graph);
    give(f.memory(forward.q), q, q_in);
    give(f.memory(forward.k), kv, k_in);
    give(f.memory(forward.v), kv, v_in);
    f.run();
    compare("out", f.memory(forward.out), o, want.out.value);
    for (std::size_t i = 0; i < want.lse.size(); ++i)
      CHECK(f.memory(forward.lse)[i] == Approx(want.lse[i]).epsilon(1e-12));

    BackwardGraph const backward(shapes, {q, kv, kv, o});
    Interpreter b(backward.graph);
    give(b.memory(backward.q), q, q_in);
    give(b.memory(backward.k), kv, k_in);
    give(b.memory(backward.v), kv, v_in);
    give(b.memory(backward.d_out), o, d_in);
    give(b.memory(backward.out), o, want.out.value);
    b.memory(backward.lse) = want.lse;
    b.run();
    compare("d_q", b.memory(backward.d_q), q, want.d_q.value);
    compare("d_k", b.memory(backward.d_k), kv, want.d_k.value);
    compare("d_v", b.memory(backward.d_v), kv, want.d_v.value);
  }
}
