// cuDNN plans attention for GPUs that are described to it and need not be here: its own checks say
// whether it has engines for our graphs. They load the driver's library; the toolkit's stub of it
// does (tests/CMakeLists.txt), and no more than loading works.
#include <catch2/catch.hpp>
#include <string>

#include "backend/cuda/cudnn/attention_graphs.h"
#include "copus/backend/attention_kernel.h"

using namespace copus;
using namespace copus::cudnn;

namespace {

// As cuDNN writes a GPU down; every one of these it asks for.
std::string described(const char* name, int capability, int processors, int shared) {
  return R"({"maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64],
    "regsPerBlock": 65536, "warpSize": 32, "maxSharedMemoryPerBlock": 49152,
    "reservedSharedMemoryPerBlock": 1024, "maxRegistersPerSM": 65536, "pciDeviceId": 0,
    "maxCtasPerSM": 32, "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "isTccDriver": 0,
    "supportCoopLaunch": 1, "smClockRateKHz": 1410000, "memClockRateKHz": 1593000,
    "l2CacheSize": 41943040, "driverVer": 13000, "cudaDeviceId": 0, "totalGlobalMem": 80000000000,
    "deviceName": ")" +
         std::string(name) + R"(", "deviceVer": )" + std::to_string(capability * 10) +
         R"(, "multiProcessorCount": )" + std::to_string(processors) +
         R"(, "maxSharedMemoryPerBlockOptin": )" + std::to_string(shared) + "}";
}

struct Sizes {
  std::int64_t B, T, H, K, D;
};

// Rows as they lie in a layer's one buffer of q, k and v.
Shape rows(const Sizes& s, std::int64_t heads, std::int64_t stride) {
  return {{s.B, heads, s.T, s.D}, {s.T * stride, s.D, stride, 1}};
}

AttentionShapes shapes_of(const Sizes& s) {
  std::int64_t const stride = (s.H + 2 * s.K) * s.D;
  return {rows(s, s.H, stride), rows(s, s.K, stride), rows(s, s.K, stride), rows(s, s.H, s.H * s.D),
          0.125f};
}

std::vector<Sizes> sizes() {
  return {{2, 1024, 12, 12, 64},  // GPT-2 124M
          {2, 2048, 32, 8, 64},   // Llama 3.2 1B
          {4, 1024, 12, 2, 128},  // Qwen2.5 1.5B
          {1, 131, 2, 1, 16},    {1, 98, 2, 1, 80},      {3, 1000, 4, 4, 128},
          {1, 1, 1, 1, 8},       {16, 1024, 12, 12, 64}, {1, 8192, 40, 8, 128},
          {1, 32768, 8, 1, 128}, {3, 2049, 5, 5, 72}};
}

}  // namespace

TEST_CASE("cuDNN has engines for attention on an A100 and an H100, which repeat their bits") {
  for (const std::string& json : {described("NVIDIA A100-SXM4-80GB", 80, 108, 166912),
                                  described("NVIDIA H100 80GB HBM3", 90, 132, 232448)}) {
    Descriptor const gpu = described_device(json);
    for (const Sizes& s : sizes()) {
      CAPTURE(json, s.B, s.T, s.H, s.K, s.D);
      AttentionShapes const shapes = shapes_of(s);
      BackwardGraph const backward(shapes, {shapes.q, shapes.k, shapes.v, shapes.out});
      for (const Graph& graph : {ForwardGraph(shapes).graph, backward.graph}) {
        std::vector<Engine> const engines = graph.engines(gpu);
        REQUIRE(!engines.empty());
        for (const Engine& engine : engines) {
          CHECK_FALSE(engine.varies);
          // Beside it lie a dot product a row, and what aligning takes.
          std::int64_t const dots = (s.B * s.H * s.T * 4 + 255) / 256 * 256;
          CHECK(engine.workspace_bytes + dots + 256 <=
                fused_attention_bytes({s.B, s.H, s.K, s.T, s.D}));
        }
      }
    }
  }
}

TEST_CASE("cuDNN has no engines on an A100 for heads that the rule keeps from it") {
  Descriptor const gpu = described_device(described("NVIDIA A100-SXM4-80GB", 80, 108, 166912));
  for (std::int64_t const width : {60, 136}) {
    AttentionShapes const shapes = shapes_of({1, 128, 2, 2, width});
    BackwardGraph const backward(shapes, {shapes.q, shapes.k, shapes.v, shapes.out});
    CAPTURE(width);
    CHECK(backward.graph.engines(gpu).empty());
    CHECK_FALSE(own_kernel_reason({DType::bf16, width, false}).empty());
  }
}
