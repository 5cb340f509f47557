#include "backend/cuda/cudnn/graph.h"

#include <fmt/format.h>

#include <algorithm>

#include "backend/cuda/cudnn/check.h"
#include "copus/core/error.h"

namespace copus::cudnn {

void cudnn_failed(cudnnStatus_t status, const char* call, const char* file, int line) {
  char words[512] = {};
  cudnnGetLastErrorString(words, sizeof words);
  throw CudaError(fmt::format("{}:{}: {} failed: {} ({})", file, line, call,
                              cudnnGetErrorString(status), words));
}

namespace {

Descriptor create(cudnnBackendDescriptorType_t type) {
  cudnnBackendDescriptor_t raw = nullptr;
  CUDNN_CHECK(cudnnBackendCreateDescriptor(type, &raw));
  return Descriptor(raw);
}

template <class T>
void set(const Descriptor& d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
         std::span<const T> values) {
  CUDNN_CHECK(cudnnBackendSetAttribute(d.get(), name, type,
                                       static_cast<std::int64_t>(values.size()), values.data()));
}
template <class T>
void set(const Descriptor& d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
         const T& value) {
  set(d, name, type, std::span<const T>(&value, 1));
}
void set(const Descriptor& d, cudnnBackendAttributeName_t name, const Descriptor& value) {
  cudnnBackendDescriptor_t const raw = value.get();
  set(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, raw);
}
void finalize(const Descriptor& d) {
  CUDNN_CHECK(cudnnBackendFinalize(d.get()));
}

template <class T>
T get(const Descriptor& d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type) {
  T value{};
  std::int64_t count = 0;
  CUDNN_CHECK(cudnnBackendGetAttribute(d.get(), name, type, 1, &count, &value));
  return value;
}

bool varies(const Descriptor& configuration) {
  Descriptor const engine = create(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t raw = engine.get();
  std::int64_t count = 0;
  CUDNN_CHECK(cudnnBackendGetAttribute(configuration.get(), CUDNN_ATTR_ENGINECFG_ENGINE,
                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &raw));
  std::array<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT> notes{};
  CUDNN_CHECK(cudnnBackendGetAttribute(
      engine.get(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
      static_cast<std::int64_t>(notes.size()), &count, notes.data()));
  auto const end = notes.begin() + count;
  return std::find(notes.begin(), end, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) != end;
}

// The descriptors of operations: how, and between which tensors.
using Tensors = std::span<const Descriptor>;

Descriptor matmul_of(const GraphOperation& o, Tensors tensors) {
  Descriptor const how = create(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  set(how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, o.math);
  finalize(how);
  Descriptor d = create(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  set(d, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
  set(d, CUDNN_ATTR_OPERATION_MATMUL_ADESC, tensors[o.a]);
  set(d, CUDNN_ATTR_OPERATION_MATMUL_BDESC, tensors[o.b]);
  set(d, CUDNN_ATTR_OPERATION_MATMUL_CDESC, tensors[o.out]);
  finalize(d);
  return d;
}

Descriptor reduction_of(const GraphOperation& o, Tensors tensors) {
  Descriptor const how = create(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  set(how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, o.reduction);
  set(how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, o.math);
  finalize(how);
  Descriptor d = create(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  set(d, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
  set(d, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, tensors[o.a]);
  set(d, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, tensors[o.out]);
  finalize(d);
  return d;
}

Descriptor reshape_of(const GraphOperation& o, Tensors tensors) {
  Descriptor d = create(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  set(d, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, tensors[o.a]);
  set(d, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, tensors[o.out]);
  finalize(d);
  return d;
}

Descriptor pointwise_of(const GraphOperation& o, Tensors tensors) {
  Descriptor const how = create(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  set(how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, o.pointwise);
  set(how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, o.math);
  if (o.axis >= 0) set(how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, o.axis);
  finalize(how);
  Descriptor d = create(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  set(d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
  set(d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, tensors[o.a]);
  if (o.b != kNone) set(d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, tensors[o.b]);
  if (o.choice != kNone) set(d, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, tensors[o.choice]);
  set(d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, tensors[o.out]);
  finalize(d);
  return d;
}

}  // namespace

Shape packed(std::int64_t b, std::int64_t heads, std::int64_t rows, std::int64_t columns) {
  return {{b, heads, rows, columns}, {heads * rows * columns, rows * columns, columns, 1}};
}

Descriptor this_device() {
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) throw CudaError("no device is the thread's own");
  Descriptor d = create(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  set(d, CUDNN_ATTR_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32, static_cast<std::int32_t>(device));
  finalize(d);
  return d;
}

Descriptor described_device(const std::string& json) {
  Descriptor d = create(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  set(d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, std::span<const char>(json));
  finalize(d);
  return d;
}

Ref Graph::tensor(const Shape& shape, cudnnDataType_t type) {
  tensors_.push_back({shape, type, false});
  return tensors_.size() - 1;
}

Ref Graph::scalar(float value) {
  tensors_.push_back({packed(1, 1, 1, 1), CUDNN_DATA_FLOAT, false, true, value});
  return tensors_.size() - 1;
}

Ref Graph::between(const Shape& shape, cudnnDataType_t type) {
  tensors_.push_back({shape, type});
  return tensors_.size() - 1;
}

Ref Graph::matmul(const Shape& shape, Ref a, Ref b) {
  Ref const out = between(shape, CUDNN_DATA_FLOAT);
  matmul_into(out, a, b);
  return out;
}

void Graph::matmul_into(Ref into, Ref a, Ref b) {
  operations_.push_back({GraphWork::matmul, into, a, b, kNone});
}

Ref Graph::pointwise(cudnnPointwiseMode_t mode, Ref a) {
  return pointwise(mode, a, kNone);
}

Ref Graph::pointwise(cudnnPointwiseMode_t mode, Ref a, Ref b) {
  Ref const out = between(tensors_[a].shape, CUDNN_DATA_FLOAT);
  pointwise_into(out, mode, a, b);
  return out;
}

void Graph::pointwise_into(Ref into, cudnnPointwiseMode_t mode, Ref a, Ref b) {
  operations_.push_back({GraphWork::pointwise, into, a, b, kNone, mode});
}

Ref Graph::reduce_rows(cudnnReduceTensorOp_t op, Ref a) {
  auto const& size = tensors_[a].shape.size;
  Ref const out = between(packed(size[0], size[1], size[2], 1), CUDNN_DATA_FLOAT);
  reduce_into(out, op, a);
  return out;
}

void Graph::reduce_into(Ref into, cudnnReduceTensorOp_t op, Ref a) {
  operations_.push_back(
      {GraphWork::reduction, into, a, kNone, kNone, CUDNN_POINTWISE_IDENTITY, op});
}

Ref Graph::reshape(const Shape& shape, Ref a) {
  Ref const out = between(shape, tensors_[a].type);
  operations_.push_back({GraphWork::reshape, out, a, kNone, kNone});
  return out;
}

Ref Graph::index(Ref a, std::int64_t axis) {
  Ref const out = between(tensors_[a].shape, CUDNN_DATA_INT32);
  GraphOperation operation{GraphWork::pointwise, out, a, kNone, kNone, CUDNN_POINTWISE_GEN_INDEX};
  operation.math = CUDNN_DATA_INT32;
  operation.axis = axis;
  operations_.push_back(operation);
  return out;
}

Ref Graph::lower_triangle(Ref a, Ref otherwise) {
  Ref const row = index(a, 2), column = index(a, 3);
  Ref const seen = between(tensors_[a].shape, CUDNN_DATA_BOOLEAN);
  GraphOperation compare{GraphWork::pointwise, seen, row, column, kNone, CUDNN_POINTWISE_CMP_GE};
  compare.math = CUDNN_DATA_BOOLEAN;
  operations_.push_back(compare);
  Ref const out = between(tensors_[a].shape, CUDNN_DATA_FLOAT);
  operations_.push_back(
      {GraphWork::pointwise, out, a, otherwise, seen, CUDNN_POINTWISE_BINARY_SELECT});
  return out;
}

Descriptor Graph::built(Ref ref) const {
  constexpr std::int64_t kAlignment = 16;  // bytes, of every address
  const GraphTensor& t = tensors_[ref];
  Descriptor d = create(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  set(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, static_cast<std::int64_t>(ref) + 1);
  set(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, t.type);
  set(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, kAlignment);
  set(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64,
      std::span<const std::int64_t>(t.shape.size));
  set(d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64,
      std::span<const std::int64_t>(t.shape.stride));
  set(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, t.between);
  set(d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, t.by_value);
  finalize(d);
  return d;
}

Descriptor Graph::built(const GraphOperation& o, std::span<const Descriptor> tensors) const {
  switch (o.work) {
    case GraphWork::matmul:
      return matmul_of(o, tensors);
    case GraphWork::reduction:
      return reduction_of(o, tensors);
    case GraphWork::reshape:
      return reshape_of(o, tensors);
    default:
      return pointwise_of(o, tensors);
  }
}

Descriptor Graph::built() const {
  std::vector<Descriptor> tensors, operations;
  for (Ref i = 0; i < tensors_.size(); ++i) tensors.push_back(built(i));
  std::vector<cudnnBackendDescriptor_t> raw;
  for (const GraphOperation& operation : operations_) {
    operations.push_back(built(operation, tensors));
    raw.push_back(operations.back().get());
  }
  Descriptor graph = create(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
      std::span<const cudnnBackendDescriptor_t>(raw));
  finalize(graph);
  return graph;
}

std::vector<Engine> Graph::engines(const Descriptor& device) const {
  constexpr std::size_t kMost = 16;
  Descriptor const graph = built(), heuristics = create(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  set(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  set(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, CUDNN_HEUR_MODE_A);
  set(heuristics, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device);
  finalize(heuristics);
  std::vector<Engine> engines(kMost);
  std::vector<cudnnBackendDescriptor_t> raw;
  for (Engine& engine : engines) {
    engine.configuration = create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    raw.push_back(engine.configuration.get());
  }
  std::int64_t count = 0;
  CUDNN_CHECK(cudnnBackendGetAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                       CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                       static_cast<std::int64_t>(kMost), &count, raw.data()));
  engines.resize(std::min(kMost, static_cast<std::size_t>(count)));
  for (Engine& engine : engines) {
    engine.varies = varies(engine.configuration);
    engine.workspace_bytes = get<std::int64_t>(
        engine.configuration, CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE, CUDNN_TYPE_INT64);
  }
  return engines;
}

Plan Graph::plan(const Descriptor& device, std::int64_t most) const {
  std::string words = "none of its engines takes the graph";
  for (const Engine& engine : engines(device)) {
    if (engine.varies) {
      words = "its engines for the graph add in another order each time";
      continue;
    }
    Plan plan{create(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)};
    set(plan.descriptor, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, engine.configuration);
    set(plan.descriptor, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, device);
    if (cudnnBackendFinalize(plan.descriptor.get()) != CUDNN_STATUS_SUCCESS) {
      char last[512] = {};
      cudnnGetLastErrorString(last, sizeof last);
      words = last;
      continue;
    }
    plan.workspace_bytes = get<std::int64_t>(
        plan.descriptor, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64);
    if (plan.workspace_bytes <= most) return plan;
    words = fmt::format("its engine wants {} bytes beside the operands, {} are planned",
                        plan.workspace_bytes, most);
  }
  throw CudaError("cuDNN has no plan: " + words);
}

void Graph::run(cudnnHandle_t handle, const Plan& plan,
                std::initializer_list<std::pair<Ref, void*>> addresses, void* workspace) {
  std::vector<std::int64_t> numbers;
  std::vector<void*> pointers;
  auto const give = [&](Ref ref, void* address) {
    numbers.push_back(static_cast<std::int64_t>(ref) + 1);
    pointers.push_back(address);
  };
  for (const auto& [ref, address] : addresses) give(ref, address);
  for (Ref i = 0; i < tensors_.size(); ++i) {
    if (tensors_[i].by_value) give(i, &tensors_[i].value);
  }
  Descriptor const pack = create(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64,
      std::span<const std::int64_t>(numbers));
  set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
      std::span<void* const>(pointers));
  set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace);
  finalize(pack);
  CUDNN_CHECK(cudnnBackendExecute(handle, plan.descriptor.get(), pack.get()));
}

}  // namespace copus::cudnn
