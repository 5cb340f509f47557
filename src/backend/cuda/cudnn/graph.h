// A graph of cuDNN's backend API: tensors, the operations between them, and the plan that runs all
// of it as one kernel or a few.
#pragma once
#include <cudnn.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace copus::cudnn {

struct DescriptorCloser {
  void operator()(void* descriptor) const noexcept { cudnnBackendDestroyDescriptor(descriptor); }
};
using Descriptor = std::unique_ptr<void, DescriptorCloser>;

// (B, heads, rows, columns), in elements.
struct Shape {
  std::array<std::int64_t, 4> size, stride;
  Shape transposed() const {  // of rows and columns
    return {{size[0], size[1], size[3], size[2]}, {stride[0], stride[1], stride[3], stride[2]}};
  }
};
Shape packed(std::int64_t b, std::int64_t heads, std::int64_t rows, std::int64_t columns);

// The GPU that plans are for: the calling thread's, or one that cuDNN once described in JSON, which
// need not be here.
Descriptor this_device();
Descriptor described_device(const std::string& json);

// A tensor's place in its graph.
using Ref = std::size_t;

// One way to run a graph, that cuDNN's own checks have found possible on the device.
struct Engine {
  Descriptor configuration;
  bool varies = false;  // adds in another order each time
  std::int64_t workspace_bytes = 0;
};

// What runs a graph on the device it was planned for.
struct Plan {
  Descriptor descriptor;
  std::int64_t workspace_bytes = 0;
};

inline constexpr Ref kNone = ~Ref{0};

// What a graph is made of, in the order of the calls.
struct GraphTensor {
  Shape shape;
  cudnnDataType_t type;
  bool between = true, by_value = false;
  float value = 0.0f;
};
enum class GraphWork : std::uint8_t { matmul, pointwise, reduction, reshape };
struct GraphOperation {
  GraphWork work;
  Ref out, a, b, choice;  // b, choice: kNone where there is none
  cudnnPointwiseMode_t pointwise = CUDNN_POINTWISE_IDENTITY;
  cudnnReduceTensorOp_t reduction = CUDNN_REDUCE_TENSOR_ADD;
  cudnnDataType_t math = CUDNN_DATA_FLOAT;
  std::int64_t axis = -1;
};

class Graph {
 public:
  // In memory; its place is also the number by which run() gives its address.
  Ref tensor(const Shape& shape, cudnnDataType_t type);
  Ref scalar(float value);  // f32, the graph's own

  // Each adds an operation and returns its result, which exists only between operations; or writes
  // it to `into`. Where no shape is given the result has that of `a`. All compute in f32.
  Ref matmul(const Shape& shape, Ref a, Ref b);
  void matmul_into(Ref into, Ref a, Ref b);
  Ref pointwise(cudnnPointwiseMode_t mode, Ref a);
  Ref pointwise(cudnnPointwiseMode_t mode, Ref a, Ref b);
  void pointwise_into(Ref into, cudnnPointwiseMode_t mode, Ref a, Ref b);
  // Over the last dimension of `a`, or over groups of its heads where `into` has fewer.
  Ref reduce_rows(cudnnReduceTensorOp_t op, Ref a);
  void reduce_into(Ref into, cudnnReduceTensorOp_t op, Ref a);
  Ref reshape(const Shape& shape, Ref a);
  // `a` where its column is at most its row, else `otherwise`.
  Ref lower_triangle(Ref a, Ref otherwise);
  // From now on `a`, a result, is of this type; f32 until then.
  void set_type(Ref a, cudnnDataType_t type) { tensors_[a].type = type; }

  const std::vector<GraphTensor>& tensors() const { return tensors_; }
  const std::vector<GraphOperation>& operations() const { return operations_; }

  // In cuDNN's order of speed.
  std::vector<Engine> engines(const Descriptor& device) const;
  // The first that gives the same bits each time and wants no more than `most` bytes beside its
  // operands, compiled. Throws CudaError where cuDNN has none, with its words.
  Plan plan(const Descriptor& device, std::int64_t most) const;
  // Starts it on the handle's stream. `addresses`: of every tensor() of the graph.
  void run(cudnnHandle_t handle, const Plan& plan,
           std::initializer_list<std::pair<Ref, void*>> addresses, void* workspace);

 private:
  Ref between(const Shape& shape, cudnnDataType_t type);
  Ref index(Ref a, std::int64_t axis);
  Descriptor built(const GraphOperation& operation, std::span<const Descriptor> tensors) const;
  Descriptor built(Ref tensor) const;
  Descriptor built() const;

  std::vector<GraphTensor> tensors_;
  std::vector<GraphOperation> operations_;
};

}  // namespace copus::cudnn
