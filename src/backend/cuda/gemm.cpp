#include "backend/cuda/gemm.h"

#include <cublasLt.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "backend/cuda/check.h"
#include "backend/cuda/kernels.h"
#include "copus/core/error.h"

namespace copus::cuda {
namespace {

[[noreturn]] void cublas_failed(cublasStatus_t status, const char* call, const char* file,
                                int line) {
  throw CudaError(
      fmt::format("{}:{}: {} failed: {}", file, line, call, cublasLtGetStatusString(status)));
}
#define CUBLAS_CHECK(call)                                           \
  do {                                                               \
    cublasStatus_t const cublas_check_status = (call);               \
    if (cublas_check_status != CUBLAS_STATUS_SUCCESS)                \
      cublas_failed(cublas_check_status, #call, __FILE__, __LINE__); \
  } while (false)

struct Closer {
  void operator()(cublasLtHandle_t x) const noexcept { cublasLtDestroy(x); }
  void operator()(cublasLtMatmulDescOpaque_t* x) const noexcept { cublasLtMatmulDescDestroy(x); }
  void operator()(cublasLtMatrixLayoutOpaque_t* x) const noexcept {
    cublasLtMatrixLayoutDestroy(x);
  }
  void operator()(cublasLtMatmulPreferenceOpaque_t* x) const noexcept {
    cublasLtMatmulPreferenceDestroy(x);
  }
};
using Handle = std::unique_ptr<std::remove_pointer_t<cublasLtHandle_t>, Closer>;
using Description = std::unique_ptr<cublasLtMatmulDescOpaque_t, Closer>;
using Matrix = std::unique_ptr<cublasLtMatrixLayoutOpaque_t, Closer>;
using Preference = std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, Closer>;

cudaDataType_t data_type(DType type) {
  return type == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

// A row-major (rows, columns) matrix is, to the library, a column-major (columns, rows) one.
Matrix matrix(DType type, std::int64_t rows, std::int64_t columns, std::int64_t leading) {
  cublasLtMatrixLayout_t raw = nullptr;
  CUBLAS_CHECK(cublasLtMatrixLayoutCreate(&raw, data_type(type),
                                          static_cast<std::uint64_t>(columns),
                                          static_cast<std::uint64_t>(rows), leading));
  return Matrix(raw);
}

template <class T>
void set(const Description& description, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(description.get(), attribute, &value, sizeof value));
}
template <class T>
void set(const Preference& preference, cublasLtMatmulPreferenceAttributes_t attribute,
         const T& value) {
  CUBLAS_CHECK(
      cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof value));
}

// The power of two, at most 256, that an address is a multiple of.
std::uint32_t alignment_of(const void* address) {
  auto const bits = reinterpret_cast<std::uintptr_t>(address) | 256u;
  return static_cast<std::uint32_t>(bits & (~bits + 1));
}

using Key = std::tuple<DType, DType, bool, bool, bool, bool, std::int64_t, std::int64_t,
                       std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::uint32_t,
                       std::uint32_t, std::uint32_t, std::uint32_t>;
Key key_of(const Product& p) {
  return {p.type,
          p.out_type,
          p.transpose_a,
          p.transpose_b,
          p.accumulate,
          p.bias != nullptr,
          p.m,
          p.n,
          p.k,
          p.lda,
          p.ldb,
          p.ldc,
          alignment_of(p.out),
          alignment_of(p.a),
          alignment_of(p.b),
          alignment_of(p.bias)};
}

// out^T = op(b)^T op(a)^T: in column-major terms the library's first operand is b.
struct Plan {
  Description description;
  Matrix first, second, out;
  cublasLtMatmulAlgo_t algorithm{};
  bool adds_bias = false;
};

constexpr std::uint64_t kWorkspace = std::uint64_t{32} << 20;  // NVIDIA's advice for Hopper

Description describe(const Product& p, bool adds_bias) {
  cublasLtMatmulDesc_t raw = nullptr;
  CUBLAS_CHECK(cublasLtMatmulDescCreate(&raw, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  Description description(raw);
  set(description, CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(description, CUBLASLT_MATMUL_DESC_TRANSB, p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (adds_bias) {
    set(description, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
    set(description, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
        static_cast<std::int32_t>(data_type(p.type)));
  }
  return description;
}

Preference preference_of(const Product& p) {
  cublasLtMatmulPreference_t raw = nullptr;
  CUBLAS_CHECK(cublasLtMatmulPreferenceCreate(&raw));
  Preference preference(raw);
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspace);
  // Parts of a sum that are added up in the output's type would be rounded to bf16 on the way.
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      p.out_type == DType::bf16 ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
                                : CUBLASLT_REDUCTION_SCHEME_MASK);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(p.b));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(p.a));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(p.out));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(p.out));
  return preference;
}

// Whether the library has an algorithm; then the plan holds it.
bool choose(cublasLtHandle_t handle, const Product& p, Plan& plan) {
  Preference const preference = preference_of(p);
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  cublasStatus_t const status = cublasLtMatmulAlgoGetHeuristic(
      handle, plan.description.get(), plan.first.get(), plan.second.get(), plan.out.get(),
      plan.out.get(), preference.get(), 1, &result, &found);
  // Types that the epilogue does not take together are an invalid value to it.
  bool const refused = status == CUBLAS_STATUS_NOT_SUPPORTED ||
                       (plan.adds_bias && status == CUBLAS_STATUS_INVALID_VALUE);
  if (refused || (status == CUBLAS_STATUS_SUCCESS && found == 0)) return false;
  CUBLAS_CHECK(status);
  CUBLAS_CHECK(result.state);
  plan.algorithm = result.algo;
  return true;
}

Plan make_plan(cublasLtHandle_t handle, const Product& p) {
  Plan plan;
  plan.first = p.transpose_b ? matrix(p.type, p.n, p.k, p.ldb) : matrix(p.type, p.k, p.n, p.ldb);
  plan.second = p.transpose_a ? matrix(p.type, p.k, p.m, p.lda) : matrix(p.type, p.m, p.k, p.lda);
  plan.out = matrix(p.out_type, p.m, p.n, p.ldc);
  plan.adds_bias = p.bias != nullptr;
  plan.description = describe(p, plan.adds_bias);
  if (choose(handle, p, plan)) return plan;
  // The epilogue knows fewer shapes than the product: there the output begins as its bias.
  if (plan.adds_bias) {
    plan.adds_bias = false;
    plan.description = describe(p, false);
    if (choose(handle, p, plan)) return plan;
  }
  throw CudaError(
      fmt::format("cuBLASLt has no product of {} to {} for m {}, n {}, k {}, leading {}, {}, {}",
                  name_of(p.type), name_of(p.out_type), p.m, p.n, p.k, p.lda, p.ldb, p.ldc));
}

}  // namespace

struct Gemm::State {
  Handle handle;
  std::map<Key, Plan> plans;
  void* workspace = nullptr;

  State() {
    cublasLtHandle_t raw = nullptr;
    CUBLAS_CHECK(cublasLtCreate(&raw));
    handle.reset(raw);
    CUDA_CHECK(cudaMalloc(&workspace, kWorkspace));
  }
  ~State() { cudaFree(workspace); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

Gemm::Gemm() : state_(std::make_unique<State>()) {}
Gemm::~Gemm() = default;

void Gemm::run(cudaStream_t stream, const Product& p) {
  cublasLtHandle_t const handle = state_->handle.get();
  Key const key = key_of(p);
  auto found = state_->plans.find(key);
  if (found == state_->plans.end()) {
    found = state_->plans.emplace(key, make_plan(handle, p)).first;
  }
  Plan const& plan = found->second;
  if (plan.adds_bias) {
    set(plan.description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
  }
  // Before the product, not behind it: the sum of all is rounded once.
  bool const bias_first = p.bias != nullptr && !plan.adds_bias;
  if (bias_first) add_bias(stream, p, p.accumulate);
  float const alpha = 1.0f, beta = p.accumulate || bias_first ? 1.0f : 0.0f;
  CUBLAS_CHECK(cublasLtMatmul(handle, plan.description.get(), &alpha, p.b, plan.first.get(), p.a,
                              plan.second.get(), &beta, p.out, plan.out.get(), p.out,
                              plan.out.get(), &plan.algorithm, state_->workspace, kWorkspace,
                              stream));
}

}  // namespace copus::cuda
