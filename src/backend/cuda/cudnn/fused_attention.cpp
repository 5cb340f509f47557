#include "backend/cuda/fused_attention.h"

#include <fmt/format.h>

#include <bit>
#include <map>
#include <utility>
#include <vector>

#include "backend/cuda/cudnn/attention_graphs.h"
#include "backend/cuda/cudnn/check.h"
#include "copus/backend/attention_kernel.h"
#include "copus/core/console.h"
#include "copus/core/error.h"

namespace copus {

std::string cudnn_problem() {
  return "";
}

std::string cudnn_version() {
  std::size_t const number = cudnnGetVersion();
  return fmt::format("{}.{}.{}", number / 10000, number / 100 % 100, number % 100);
}

namespace cuda {
namespace {

struct HandleCloser {
  void operator()(cudnnHandle_t handle) const noexcept { cudnnDestroy(handle); }
};
using Handle = std::unique_ptr<std::remove_pointer_t<cudnnHandle_t>, HandleCloser>;

// x (B, T, heads, D) as cuDNN counts dimensions.
cudnn::Shape shape_of(const TensorView& x) {
  return {{x.size[0], x.size[2], x.size[1], x.size[3]},
          {x.stride[0], x.stride[2], x.stride[1], x.stride[3]}};
}

// The kernels read 16 bytes at a time.
bool aligned(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) % 16 == 0;
}
bool aligned(const TensorView& x) {
  auto const eights = [&](int dim) {
    auto const d = static_cast<std::size_t>(dim);
    return x.size[d] <= 1 || x.stride[d] % 8 == 0;
  };
  return aligned(x.data) && eights(0) && eights(1) && eights(2);
}

// What a plan depends on: sizes and strides of every operand, the scale, and the room.
using Key = std::vector<std::int64_t>;
Key key_of(std::initializer_list<TensorView> views, float scale, std::int64_t most) {
  Key key{static_cast<std::int64_t>(std::bit_cast<std::uint32_t>(scale)), most};
  for (const TensorView& view : views) {
    cudnn::Shape const shape = shape_of(view);
    key.insert(key.end(), shape.size.begin(), shape.size.end());
    key.insert(key.end(), shape.stride.begin(), shape.stride.end());
  }
  return key;
}

template <class G>
struct Planned {
  G graph;
  cudnn::Plan plan;
};
// Null: cuDNN has no plan.
template <class G>
using Plans = std::map<Key, std::unique_ptr<Planned<G>>>;

}  // namespace

struct FusedAttention::State {
  Handle handle;
  cudnn::Descriptor device;
  Plans<cudnn::ForwardGraph> forward;
  Plans<cudnn::BackwardGraph> backward;

  State() {
    cudnnHandle_t raw = nullptr;
    CUDNN_CHECK(cudnnCreate(&raw));
    handle.reset(raw);
    device = cudnn::this_device();
  }

  // `most`: bytes that the kernels may take beside their operands.
  template <class G, class Make>
  Planned<G>* find(Plans<G>& plans, Key key, std::int64_t most, const char* direction,
                   const Make& make) {
    auto const found = plans.find(key);
    if (found != plans.end()) return found->second.get();
    std::unique_ptr<Planned<G>> made;
    try {
      G graph = make();
      cudnn::Plan plan = graph.graph.plan(device, most);
      made = std::make_unique<Planned<G>>(Planned<G>{std::move(graph), std::move(plan)});
    } catch (const CudaError& e) {
      standard_error().write(
          fmt::format("warning: attention {} goes by our own kernel: {}\n", direction, e.what()));
    }
    return plans.emplace(std::move(key), std::move(made)).first->second.get();
  }
};

FusedAttention::FusedAttention() = default;
FusedAttention::~FusedAttention() = default;

FusedAttention::State& FusedAttention::state() {
  if (state_ == nullptr) state_ = std::make_unique<State>();
  return *state_;
}

bool FusedAttention::forward(cudaStream_t stream, const AttentionTensors& a,
                             const AttentionRoom& room) {
  for (const TensorView& view : {a.q, a.k, a.v, a.out})
    if (!aligned(view)) return false;
  if (!aligned(a.lse.data)) return false;
  auto* const planned = state().find<cudnn::ForwardGraph>(
      state_->forward, key_of({a.q, a.k, a.v, a.out}, a.scale, room.most), room.most, "forward",
      [&] {
        return cudnn::ForwardGraph(
            {shape_of(a.q), shape_of(a.k), shape_of(a.v), shape_of(a.out), a.scale});
      });
  if (planned == nullptr) return false;
  cudnn::ForwardGraph& g = planned->graph;
  CUDNN_CHECK(cudnnSetStream(state_->handle.get(), stream));
  g.graph.run(
      state_->handle.get(), planned->plan,
      {{g.q, a.q.data}, {g.k, a.k.data}, {g.v, a.v.data}, {g.out, a.out.data}, {g.lse, a.lse.data}},
      room.take(planned->plan.workspace_bytes));
  return true;
}

bool FusedAttention::backward(cudaStream_t stream, const AttentionTensors& a,
                              const AttentionGradients& d, const AttentionRoom& room) {
  for (const TensorView& view : {a.q, a.k, a.v, a.out, d.d_q, d.d_k, d.d_v, d.d_out})
    if (!aligned(view)) return false;
  if (!aligned(a.lse.data)) return false;
  // The rows' dot products, then what the kernels want, each 256-byte aligned.
  std::int64_t const dots = (a.lse.bytes() + 255) / 256 * 256, most = room.most - dots;
  auto* const planned = state().find<cudnn::BackwardGraph>(
      state_->backward, key_of({a.q, a.k, a.v, a.out, d.d_q, d.d_k, d.d_v, d.d_out}, a.scale, most),
      most, "backward", [&] {
        return cudnn::BackwardGraph(
            {shape_of(a.q), shape_of(a.k), shape_of(a.v), shape_of(a.out), a.scale},
            {shape_of(d.d_q), shape_of(d.d_k), shape_of(d.d_v), shape_of(d.d_out)});
      });
  if (planned == nullptr) return false;
  cudnn::BackwardGraph& g = planned->graph;
  std::byte* const place = room.take(dots + planned->plan.workspace_bytes);
  CUDNN_CHECK(cudnnSetStream(state_->handle.get(), stream));
  g.graph.run(state_->handle.get(), planned->plan,
              {{g.q, a.q.data},
               {g.k, a.k.data},
               {g.v, a.v.data},
               {g.out, a.out.data},
               {g.lse, a.lse.data},
               {g.d_out, d.d_out.data},
               {g.d_q, d.d_q.data},
               {g.d_k, d.d_k.data},
               {g.d_v, d.d_v.data},
               {g.along, place}},
              place + dots);
  return true;
}

}  // namespace cuda
}  // namespace copus
