// What the CUDA runtime says of this machine.
#include "copus/backend/device.h"

#include <cuda_runtime_api.h>

namespace copus {
namespace {

Gpu ask(int index, std::string& failure) {
  Gpu gpu;
  gpu.index = index;
  cudaDeviceProp properties{};
  cudaError_t error = cudaGetDeviceProperties(&properties, index);
  char pci[32] = {};
  if (error == cudaSuccess) error = cudaDeviceGetPCIBusId(pci, sizeof pci, index);
  if (error != cudaSuccess) {
    failure = cudaGetErrorString(error);
    return gpu;
  }
  gpu.name = properties.name;
  gpu.pci = pci;
  gpu.memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem);
  gpu.capability = properties.major * 10 + properties.minor;
  return gpu;
}

}  // namespace

CudaFacts cuda_facts() {
  CudaFacts facts;
  facts.built = true;
  facts.oldest_capability = COPUS_CUDA_OLDEST_ARCHITECTURE;
  facts.runtime = CUDART_VERSION;
  if (cudaDriverGetVersion(&facts.driver) != cudaSuccess) facts.driver = 0;
  if (facts.driver == 0) return facts;
  int count = 0;
  cudaError_t const error = cudaGetDeviceCount(&count);
  cudaGetLastError();  // told here: the next check must not see it
  if (error == cudaErrorInsufficientDriver) {
    facts.driver_too_old = true;
  } else if (error != cudaSuccess && error != cudaErrorNoDevice) {
    facts.failure = cudaGetErrorString(error);
  }
  for (int i = 0; error == cudaSuccess && i < count; ++i)
    facts.gpus.push_back(ask(i, facts.failure));
  return facts;
}

}  // namespace copus
